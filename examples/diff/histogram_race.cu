// Wrong on purpose: threads add to the same counter without an atomic operation.
__global__ void histogram(const int* in, int* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[in[i] & 255] += 1;
}
