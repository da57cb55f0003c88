// Google Benchmark with the guard object; the loop only launches, and waits for the GPU at its end.
#include <benchmark/benchmark.h>

#include "gemm.hpp"
#include "gpuwatch.hpp"

static void product(benchmark::State &state) {
  static gemm work(nullptr);
  auto window = gpuwatch::window::of_passes("Google Benchmark", state.max_iterations, 100);
  window.iteration();
  for (auto _ : state) {
    work.launch();
    window.iteration();
  }
  window.end();
  cudaDeviceSynchronize();
}
BENCHMARK(product)->Unit(benchmark::kMicrosecond)->UseRealTime()->MinTime(3.0);
BENCHMARK_MAIN();
