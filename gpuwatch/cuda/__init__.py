"""CUDA events, and gpuwatch's kernels: stamps of the true clock, and a spin.  Importing this package creates no context."""
