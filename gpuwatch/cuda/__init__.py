"""Kernels of gpuwatch on the GPU: stamps of the true clock.  Only a process with a CUDA context imports this package."""
