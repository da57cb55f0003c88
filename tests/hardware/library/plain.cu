// A plain CUDA program: the C API around a loop on a non-blocking stream; with `reset`, a device reset and another window.
#include <chrono>
#include <cstring>

#include "gemm.hpp"
#include "gpuwatch.hpp"

static double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int count, char **arguments) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  bool is_reset = count > 1 && !strcmp(arguments[1], "reset");
  gemm work(stream);
  gw_prepare();  // before the warm-up, because the first call on a machine is slow
  for (double until = now_s() + 3.0; now_s() < until; cudaStreamSynchronize(stream))
    for (int i = 0; i < 20; i++) work.launch();
  double before = now_s();
  gpuwatch::window window(is_reset ? "C++ program, then a reset" : "C++ program", stream);
  double opened = now_s();
  double launched = 0;
  long marks = 0;
  for (double until = now_s() + 3.0; now_s() < until;) {
    for (int i = 0; i < 20; i++, marks++) {
      double at = now_s();
      window.iteration();
      launched += now_s() - at;
      work.launch();
    }
    cudaStreamSynchronize(stream);  // no more than 20 launches ahead
  }
  window.iteration();
  cudaStreamSynchronize(stream);
  double ending = now_s();
  window.end();
  fprintf(stderr, "open %.3f ms, end %.3f ms, a mark %.2f us of %ld\n", (opened - before) * 1e3, (now_s() - ending) * 1e3, launched / marks * 1e6, marks);
  if (is_reset) {
    cudaDeviceReset();
    cudaFree(nullptr);
    gpuwatch::window after("after a reset");
    after.iteration();
    after.iteration();
    after.end();
  }
}
