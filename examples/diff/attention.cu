// Attention with one query per warp and a running maximum, so that scores are never written.  The head dimension is 64.
__global__ void __launch_bounds__(32) attention(const float* q, const float* k, const float* v, float* out, int n) {
    const float* query = q + (size_t)blockIdx.x * 64;
    float q0 = query[threadIdx.x], q1 = query[threadIdx.x + 32], o0 = 0.0f, o1 = 0.0f, most = -INFINITY, sum = 0.0f;
    for (int j = 0; j < n; j++) {
        const float* key = k + (size_t)j * 64;
        const float* value = v + (size_t)j * 64;
        float score = q0 * key[threadIdx.x] + q1 * key[threadIdx.x + 32];
        for (int lane = 16; lane > 0; lane >>= 1) score += __shfl_xor_sync(0xffffffffu, score, lane);
        float larger = fmaxf(most, score * 0.125f), kept = __expf(most - larger), part = __expf(score * 0.125f - larger);
        o0 = o0 * kept + part * value[threadIdx.x];
        o1 = o1 * kept + part * value[threadIdx.x + 32];
        sum = sum * kept + part;
        most = larger;
    }
    out[(size_t)blockIdx.x * 64 + threadIdx.x] = o0 / sum;
    out[(size_t)blockIdx.x * 64 + threadIdx.x + 32] = o1 / sum;
}
