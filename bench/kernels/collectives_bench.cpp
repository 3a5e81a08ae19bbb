/// What the ranks' collectives cost: all_reduce of a step's rows, all_gather of its logits. The ranks are threads: on the CPU
/// they share its processors, on CUDA each has a GPU of its own (all of this machine).
///
/// Arguments: rows, columns. A graph of kCalls calls is replayed, as a step does; the time is that of one call on rank 0.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/backend.h"
#include "ranks/rank_group.h"

namespace baton {
namespace {

constexpr int kCalls = 64;
constexpr int kReplays = 20;

/// A backend for each rank; made once, because a process connects GPUs slowly.
struct Ranks {
  std::vector<std::shared_ptr<RankGroup>> groups;
  std::vector<std::unique_ptr<Backend>> backends;
  std::string error;

  /// Calls `body` for each rank at the same time.
  void run(const std::function<void(std::size_t)>& body) const {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < groups.size(); ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }
};

int n_gpus() {
  int n = 0;
  while (n < kMaxRanks && make_backend("cuda", {.device = n})) ++n;
  return n;
}

Ranks make_ranks() {
  Ranks made;
  const int n = n_gpus();
  const std::string device = n >= 2 ? "cuda" : "cpu";
  RankOptions options;
  options.world_size = std::max(2, n);
  auto groups = RankGroup::make_threads(options);
  if (!groups) {
    made.error = groups.error().message;
    return made;
  }
  made.groups = std::move(*groups);
  made.backends.resize(made.groups.size());
  made.run([&](std::size_t rank) {
    auto backend = make_backend(device, {.n_threads = 1, .device = static_cast<int>(rank), .ranks = made.groups[rank]});
    if (backend)
      made.backends[rank] = std::move(*backend);
    else if (rank == 0)
      made.error = backend.error().message;
  });
  return made;
}

const Ranks& ranks() {
  static const Ranks* const made = new Ranks(make_ranks());  // stays: CUDA ends before static objects do
  return *made;
}

/// Times kCalls calls of `call`, which gets two buffers of `bytes` bytes.
void time_calls(benchmark::State& state, std::size_t bytes,
                const std::function<void(Backend&, const Buffer&, const Buffer&)>& call) {
  const Ranks& all = ranks();
  if (!all.error.empty()) return state.SkipWithError(all.error.c_str());
  std::vector<double> times;
  all.run([&](std::size_t rank) {
    Backend& backend = *all.backends[rank];
    const Buffer first = backend.allocate(bytes).value();
    const Buffer second = backend.allocate(bytes).value();
    const std::vector<std::byte> zeros(bytes);
    for (const Buffer* buffer : {&first, &second})
      backend.copy_from_host(buffer->view(DType::u8, {static_cast<std::int64_t>(bytes)}),
                             {zeros.data(), DType::u8, {static_cast<std::int64_t>(bytes)}});
    const auto graph = backend.capture([&] {
      for (int i = 0; i < kCalls; ++i) call(backend, first, second);
    });
    for (int replay = 0; replay < kReplays + 3; ++replay) {
      const double us = backend.time_us([&] { (*graph)->replay(); });
      if (rank == 0 && replay >= 3) times.push_back(us / kCalls);
    }
  });
  std::ranges::sort(times);
  for (auto _ : state) state.SetIterationTime(times[times.size() / 2] * 1e-6);
  state.SetLabel(all.backends.front()->info().device + ", " + std::to_string(all.groups.size()) + " ranks");
}

void all_reduces(benchmark::State& state) {
  const Shape shape{state.range(0), state.range(1)};
  time_calls(state, static_cast<std::size_t>(shape.n_elements()) * size_bytes(DType::bf16),
             [&](Backend& backend, const Buffer& x, const Buffer&) { all_reduce(backend, x.view(DType::bf16, shape)); });
}

void all_gathers(benchmark::State& state) {
  const std::int64_t n_ranks = ranks().error.empty() ? static_cast<std::int64_t>(ranks().groups.size()) : 1;
  const std::int64_t share = (state.range(1) / n_ranks + 7) / 8 * 8;
  const Shape parts{n_ranks, state.range(0), share};
  const Shape out{state.range(0), std::min(state.range(1), n_ranks * share)};
  time_calls(state, static_cast<std::size_t>(parts.n_elements()) * size_bytes(DType::f32),
             [&](Backend& backend, const Buffer& from, const Buffer& to) {
               all_gather(backend, {from.view(DType::f32, parts), to.view(DType::f32, out)});
             });
}

BENCHMARK(all_reduces)
    ->ArgNames({"rows", "d_model"})
    ->ArgsProduct({{1, 8, 32, 64, 128, 512, 2048}, {4096, 5120, 6656}})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(all_gathers)
    ->ArgNames({"rows", "n_vocab"})
    ->ArgsProduct({{1, 32, 128}, {32000, 128256}})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton
