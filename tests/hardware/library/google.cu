// Google Benchmark with the guard object; the loop waits for each product, as its host times need.
#include <benchmark/benchmark.h>

#include "gemm.hpp"
#include "gpuwatch.hpp"

static void product(benchmark::State &state) {
  static gemm work(nullptr);
  auto window = gpuwatch::window::of_passes("Google Benchmark", state.max_iterations, 100);
  window.iteration();
  for (auto _ : state) {
    work.launch();
    cudaDeviceSynchronize();
    window.iteration();
  }
}
BENCHMARK(product)->Unit(benchmark::kMicrosecond)->UseRealTime()->MinTime(3.0);
BENCHMARK_MAIN();
