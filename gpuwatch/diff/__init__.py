"""`gpuwatch diff`: compares the code of two kernels without a GPU, and times both on one."""
