// The sum of each block's part: four floats per load, then shuffles within warps; n is a multiple of four.
__global__ void reduce_sum(const float* in, float* out, int n) {
    __shared__ float part[32];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        float4 four = reinterpret_cast<const float4*>(in)[i];
        sum += (four.x + four.y) + (four.z + four.w);
    }
    for (int lane = 16; lane > 0; lane >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, lane);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        for (int lane = 16; lane > 0; lane >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, lane);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}
