/// The backend that a kernel benchmark runs on.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "kernels/backend.h"

namespace baton::bench {

/// The backend of $BATON_BENCH_DEVICE (default: cpu), made once. Null if it cannot be made; the benchmark is then
/// skipped with the reason.
inline Backend* backend_for(benchmark::State& state) {
  static const auto made = [] {
    const char* device = std::getenv("BATON_BENCH_DEVICE");
    return make_backend(device == nullptr ? "cpu" : device, {});
  }();
  if (made) return made->get();
  state.SkipWithError(made.error().message.c_str());
  return nullptr;
}

}  // namespace baton::bench
