// A square product with eight by eight sums per thread; with -maxrregcount=32 the compiler spills registers.
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    float sums[8][8] = {};
    int row = (blockIdx.y * blockDim.y + threadIdx.y) * 8, col = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (row + 7 >= n || col + 7 >= n) return;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8; j++) sums[i][j] += a[(row + i) * n + k] * b[k * n + col + j];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) c[(row + i) * n + col + j] = sums[i][j];
}
