"""Kernels of gpuwatch on the GPU: stamps of the true clock, and a spin.  An import of this package creates no CUDA context."""
