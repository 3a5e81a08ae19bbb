/// The backend that a kernel benchmark runs on.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "kernels/backend.h"

namespace baton::bench {

/// The backend of $BATON_BENCH_DEVICE (cpu where it is not set), made once; null, and the benchmark is skipped with the reason,
/// where there is none.
inline Backend* backend_for(benchmark::State& state) {
  static const auto made = [] {
    const char* device = std::getenv("BATON_BENCH_DEVICE");
    return make_backend(device == nullptr ? "cpu" : device, {});
  }();
  if (made) return made->get();
  state.SkipWithError(made.error().message.c_str());
  return nullptr;
}

/// Runs `operations` again and again, timed by the device's clock. The benchmark must use manual time.
inline void run_timed(benchmark::State& state, Backend& backend, const std::function<void()>& operations) {
  for (auto _ : state) state.SetIterationTime(backend.time_us(operations) * 1e-6);
}

}  // namespace baton::bench
