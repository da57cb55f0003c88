// A loop under Google Benchmark; gpuwatch reads the repetitions.  On a GPU, time with CUDA events and UseManualTime().
//
//   g++ -O2 google_benchmark.cc -o bench -lbenchmark -lpthread
//   gpuwatch run -- ./bench --benchmark_repetitions=20 --benchmark_out=r.json --benchmark_out_format=json
//   gpuwatch judge r.json
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

static void sum(benchmark::State& state) {
  std::vector<double> values(state.range(0), 1.0);
  for (auto _ : state) benchmark::DoNotOptimize(std::accumulate(values.begin(), values.end(), 0.0));
}
BENCHMARK(sum)->Arg(1 << 10)->Arg(1 << 16);

BENCHMARK_MAIN();
