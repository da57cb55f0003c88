// A gpuwatch window as an object, for Google Benchmark and for plain C++ loops.
#pragma once

#include <string>

#include "gpuwatch.h"

namespace gpuwatch {

// A window from construction to destruction.
class window {
 public:
  explicit window(const std::string &label, void *stream = nullptr) : window_(gw_begin_on(label.c_str(), stream)) {}

  // For a harness that calls its body repeatedly with more and more passes.  A call with fewer than `least` passes opens no
  // window.  The label ends with the number of passes, which distinguishes the calls.
  static window of_passes(const std::string &label, long long passes, long long least = 10, void *stream = nullptr) {
    return passes < least ? window() : window(label + "/" + std::to_string(passes), stream);
  }

  // Movable, but neither copyable nor assignable.
  window(window &&other) noexcept : window_(other.window_) { other.window_ = 0; }
  ~window() { gw_end(window_); }

  // Call this before the first iteration, and after each.
  void iteration() { gw_iteration(window_); }
  void declare(const char *name, double value) { gw_declare(window_, name, value); }
  void declare(const char *name, const char *value) { gw_declare_text(window_, name, value); }
  void end() {
    gw_end(window_);
    window_ = 0;
  }
  explicit operator bool() const { return window_ != 0; }

 private:
  window() = default;
  gw_window window_ = 0;
};

}  // namespace gpuwatch
