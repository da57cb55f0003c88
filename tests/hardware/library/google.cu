// Google Benchmark with the guard object; each call of 1000 passes or more warms up before the window, outside the counted time.
#include <benchmark/benchmark.h>

#include <chrono>

#include "gemm.hpp"
#include "gpuwatch.hpp"

static void product(benchmark::State &state) {
  static constexpr long least = 1000;  // 1.5 s: shorter windows can be too short for a proof
  static gemm work(nullptr);
  gw_prepare();
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(state.max_iterations >= least ? 3 : 0);
  for (; std::chrono::steady_clock::now() < until; cudaDeviceSynchronize())
    for (int i = 0; i < 20; i++) work.launch();
  auto window = gpuwatch::window::of_passes("Google Benchmark", state.max_iterations, least);
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
