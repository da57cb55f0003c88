"""Kernels of gpuwatch on the GPU: stamps of the true clock.  Imported only in a process that has a CUDA context."""
