// Google Benchmark: the guard opens a window for each call of the body with 100 passes or more.  The last is the reported one.
#include <benchmark/benchmark.h>

#include <gpuwatch.hpp>
#include <thread>

static void step(benchmark::State &state) {
  auto window = gpuwatch::window::of_passes("step", state.max_iterations, 100);
  window.iteration();
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // your launches, and cudaDeviceSynchronize()
    window.iteration();
  }
}
BENCHMARK(step)->UseRealTime()->MinTime(1.0);
BENCHMARK_MAIN();
