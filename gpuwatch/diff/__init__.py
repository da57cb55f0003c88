"""`gpuwatch diff`: two kernels compared by their code, from any file that holds one, without a GPU."""
