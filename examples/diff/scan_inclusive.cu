// Hillis and Steele's inclusive scan of each block: log2(256) steps of 256 additions.
__global__ void __launch_bounds__(256) scan(const float* in, float* out, int n) {
    __shared__ float row[2][256];
    int i = blockIdx.x * 256 + threadIdx.x, from = 0;
    row[0][threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int step = 1; step < 256; step <<= 1) {
        float left = threadIdx.x >= step ? row[from][threadIdx.x - step] : 0.0f;
        row[1 - from][threadIdx.x] = row[from][threadIdx.x] + left;
        from = 1 - from;
        __syncthreads();
    }
    if (i < n) out[i] = row[from][threadIdx.x];
}
