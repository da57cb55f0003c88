// gpuwatch's window as an object, for the loops of Google Benchmark and of plain C++.
#pragma once

#include <string>

#include "gpuwatch.h"

namespace gpuwatch {

// A window from construction to destruction.
class window {
 public:
  explicit window(const std::string &label, void *stream = nullptr) : window_(gw_begin_on(label.c_str(), stream)) {}

  // For a harness that calls its body again and again with more passes: a call of fewer than `least` opens no window, and the
  // label ends with the number of passes, so that the calls are told apart.
  static window of_passes(const std::string &label, long long passes, long long least = 10, void *stream = nullptr) {
    return passes < least ? window() : window(label + "/" + std::to_string(passes), stream);
  }

  // It moves into another place, and is neither copied nor assigned.
  window(window &&other) noexcept : window_(other.window_) { other.window_ = 0; }
  ~window() { gw_end(window_); }

  // Call it before the first iteration, and after each.
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
