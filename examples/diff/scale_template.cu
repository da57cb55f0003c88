// A template that the file instantiates for one type; --fn 'scale<double, 128>' compiles another.
template <typename T, int BLOCK>
__global__ void scale(const T* in, T* out, T factor, int n) {
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) out[i] = in[i] * factor;
}

template __global__ void scale<float, 256>(const float*, float*, float, int);
