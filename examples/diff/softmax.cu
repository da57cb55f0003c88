// Softmax with one warp per row, in three passes: maximum, sum of exponentials, quotients.
__global__ void __launch_bounds__(32) softmax(const float* in, float* out, int cols) {
    const float* row = in + (size_t)blockIdx.x * cols;
    float most = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 32) most = fmaxf(most, row[i]);
    for (int lane = 16; lane > 0; lane >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
    for (int i = threadIdx.x; i < cols; i += 32) sum += __expf(row[i] - most);
    for (int lane = 16; lane > 0; lane >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    for (int i = threadIdx.x; i < cols; i += 32) out[(size_t)blockIdx.x * cols + i] = __expf(row[i] - most) / sum;
}
