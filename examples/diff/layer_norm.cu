// Layer norm of rows, one warp each: mean and variance in two passes, or both in one.
__device__ float of_warp(float value) {
    for (int lane = 16; lane > 0; lane >>= 1) value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
}

__global__ void two_passes(const float* in, const float* weight, float* out, int cols) {
    const float* row = in + (size_t)blockIdx.x * cols;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 32) sum += row[i];
    float mean = of_warp(sum) / cols;
    for (int i = threadIdx.x; i < cols; i += 32) squares += (row[i] - mean) * (row[i] - mean);
    float scale = rsqrtf(of_warp(squares) / cols + 1e-5f);
    for (int i = threadIdx.x; i < cols; i += 32) out[(size_t)blockIdx.x * cols + i] = (row[i] - mean) * scale * weight[i];
}

__global__ void one_pass(const float* in, const float* weight, float* out, int cols) {
    const float* row = in + (size_t)blockIdx.x * cols;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 32) {
        sum += row[i];
        squares += row[i] * row[i];
    }
    float mean = of_warp(sum) / cols;
    float scale = rsqrtf(of_warp(squares) / cols - mean * mean + 1e-5f);
    for (int i = threadIdx.x; i < cols; i += 32) out[(size_t)blockIdx.x * cols + i] = (row[i] - mean) * scale * weight[i];
}
