// Blocks of at most 128 threads, declared by __launch_bounds__.
__global__ void __launch_bounds__(128) saxpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
