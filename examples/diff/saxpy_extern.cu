// A name that is not mangled, so that only the debug information holds the parameter types.
extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < n) {
        float4 in = *reinterpret_cast<const float4*>(x + i), out = *reinterpret_cast<float4*>(y + i);
        *reinterpret_cast<float4*>(y + i) = make_float4(a * in.x + out.x, a * in.y + out.y, a * in.z + out.z, a * in.w + out.w);
    } else {
        for (; i < n; i++) y[i] = a * x[i] + y[i];
    }
}
