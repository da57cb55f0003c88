// Google Benchmark: the guard opens a window for each call of the body with 100 passes or more.  The last window belongs to the printed result.
// Each such call warms up first, outside the measured time: a window that begins right after a pause is flagged.
#include <benchmark/benchmark.h>

#include <chrono>
#include <gpuwatch.hpp>
#include <thread>

static constexpr long least = 100;  // passes: choose as many as take a second or longer

static void launch() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }  // your launches, and cudaDeviceSynchronize()

static void step(benchmark::State &state) {
  gw_prepare();
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(state.max_iterations >= least ? 3 : 0);
  while (std::chrono::steady_clock::now() < until) launch();
  auto window = gpuwatch::window::of_passes("step", state.max_iterations, least);
  window.iteration();
  for (auto _ : state) {
    launch();
    window.iteration();
  }
}
BENCHMARK(step)->UseRealTime()->MinTime(1.0);
BENCHMARK_MAIN();
