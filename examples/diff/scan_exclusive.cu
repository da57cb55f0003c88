// Blelloch's exclusive scan: up and down a tree in shared memory, with strides that cause bank conflicts.
__global__ void __launch_bounds__(256) scan(const float* in, float* out, int n) {
    __shared__ float tree[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    tree[threadIdx.x] = i < n ? in[i] : 0.0f;
    for (int step = 1; step < 256; step <<= 1) {
        __syncthreads();
        int at = (threadIdx.x + 1) * step * 2 - 1;
        if (at < 256) tree[at] += tree[at - step];
    }
    if (threadIdx.x == 0) tree[255] = 0.0f;
    for (int step = 128; step > 0; step >>= 1) {
        __syncthreads();
        int at = (threadIdx.x + 1) * step * 2 - 1;
        if (at < 256) {
            float left = tree[at - step];
            tree[at - step] = tree[at];
            tree[at] += left;
        }
    }
    __syncthreads();
    if (i < n) out[i] = tree[threadIdx.x];
}
