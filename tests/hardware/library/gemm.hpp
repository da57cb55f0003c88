// A product of 8192 x 8192 bf16 matrices by cuBLAS, which reaches the power cap of an H200; the variable CUBLAS is the library's path.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

__global__ void fill(__nv_bfloat16 *out, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
    unsigned x = unsigned(i) * 2654435761u ^ seed;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    out[i] = __float2bfloat16(float(x & 0xFFFF) / 32768.0f - 1.0f);
  }
}

class gemm {
 public:
  static constexpr int size = 8192;
  explicit gemm(cudaStream_t stream) : stream_(stream) {
    void *library = dlopen(getenv("CUBLAS") ? getenv("CUBLAS") : "libcublas.so", RTLD_NOW);
    auto create = reinterpret_cast<int (*)(void **)>(library ? dlsym(library, "cublasCreate_v2") : nullptr);
    auto set_stream = reinterpret_cast<int (*)(void *, cudaStream_t)>(library ? dlsym(library, "cublasSetStream_v2") : nullptr);
    call_ = reinterpret_cast<call>(library ? dlsym(library, "cublasGemmEx") : nullptr);
    for (auto &each : matrices_) cudaMalloc(&each, size_t(size) * size * 2);
    if (!call_ || create(&handle_) || set_stream(handle_, stream)) {
      fprintf(stderr, "no cuBLAS: %s\n", dlerror());
      exit(2);
    }
    for (unsigned i = 0; i < 2; i++) fill<<<1024, 256, 0, stream>>>(matrices_[i], size_t(size) * size, i + 1);
  }
  void launch() {
    const float one = 1, zero = 0;
    if (call_(handle_, 0, 0, size, size, size, &one, matrices_[0], 14, size, matrices_[1], 14, size, &zero, matrices_[2], 14, size, 68, -1)) exit(3);
  }

 private:
  using call = int (*)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);
  cudaStream_t stream_;
  void *handle_ = nullptr;
  call call_ = nullptr;
  __nv_bfloat16 *matrices_[3] = {};
};
