// Count per block in shared memory, then add each counter to the result with one atomic operation.
__global__ void histogram(const int* in, int* out, int n) {
    __shared__ int mine[256];
    for (int k = threadIdx.x; k < 256; k += blockDim.x) mine[k] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[in[i] & 255], 1);
    __syncthreads();
    for (int k = threadIdx.x; k < 256; k += blockDim.x) atomicAdd(&out[k], mine[k]);
}
