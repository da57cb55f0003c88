// Wrong on purpose: the loop never ends once y holds a number.
__global__ void saxpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    volatile float* at = y + i;
    if (i < n)
        while (*at == *at) *at = a * x[i];
}
