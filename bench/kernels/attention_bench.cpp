/// The attention kernel alone: one item of R rows over a run of keys (a relayed node), and one leaf per row (what the
/// node replaces).
///
/// Arguments: rows, positions of the run, query heads per KV head, head_dim, storage (0 f32, 1 bf16). 8 KV heads;
/// blocks in random order.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/kv/kv_storage.h"

namespace baton {
namespace {

constexpr int kKvHeads = 8;
constexpr int kBlockLen = 16;

/// A step of `n_rows` rows at the end of `kv_len` positions, with the item list given.
struct Bench {
  Bench(const benchmark::State& state, bool shared)
      : n_rows(static_cast<int>(state.range(0))),
        kv_len(static_cast<int>(state.range(1))),
        n_heads(static_cast<int>(state.range(2)) * kKvHeads),
        head_dim(static_cast<int>(state.range(3))) {
    const int n_runs = shared ? 1 : n_rows;
    const int run_blocks = kv_len / kBlockLen;
    kv = cpu::CpuKvStorage::make(
             {1, n_runs * run_blocks, kBlockLen, kKvHeads, head_dim, state.range(4) == 1 ? DType::bf16 : DType::f32})
             .value();
    kv->fill_bytes(0x3c);  // small numbers in both types
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(n_runs * run_blocks));
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    std::vector<AttentionItem> items;
    for (int run = 0; run < n_runs; ++run) {
      AttentionItem item;
      item.first_row = run;
      item.n_rows = shared ? n_rows : 1;
      item.block_list = run * run_blocks;
      item.kv_end = kv_len;
      item.flags = AttentionItem::direct;
      items.push_back(item);
    }
    for (int row = 0; row < n_rows; ++row) rows.push_back({row, kv_len - 1, 0, kv_len});
    q.assign(static_cast<std::size_t>(n_rows * n_heads * head_dim), 0.5f);
    out = q;
    step.append(SectionKind::items, items);
    step.append(SectionKind::block_lists, blocks);
    step.finish();
  }

  void run(Backend& backend) {
    const Shape shape{n_rows, n_heads, head_dim};
    backend.attention({view_of(std::span<const float>(q), shape),
                       view_of(std::span(out), shape),
                       {},
                       {reinterpret_cast<const std::byte*>(rows.data()), DType::u8, {n_rows, 16}},
                       step.view(),
                       0,
                       0,
                       kv.get(),
                       0.1f});
  }

  int n_rows, kv_len, n_heads, head_dim;
  std::unique_ptr<cpu::CpuKvStorage> kv;
  std::vector<TokenRow> rows;
  std::vector<float> q, out;
  StepInput step;
};

void run(benchmark::State& state, bool shared) {
  const auto backend = cpu::CpuBackend::make({});
  if (!backend) return state.SkipWithError(backend.error().message.c_str());
  Bench bench(state, shared);
  for (auto _ : state) bench.run(**backend);
  const double positions = static_cast<double>(bench.n_rows) * bench.kv_len;
  const double n_reads = shared ? bench.kv_len : positions;
  const auto per_second = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["flops"] = benchmark::Counter(4 * positions * bench.n_heads * bench.head_dim, per_second);
  state.counters["kv_bytes"] = benchmark::Counter(n_reads * static_cast<double>(bench.kv->shape().token_bytes()), per_second);
}

void attention_shared(benchmark::State& state) { run(state, true); }
void attention_leaves(benchmark::State& state) { run(state, false); }

BENCHMARK(attention_shared)
    ->ArgNames({"rows", "len", "group", "dim", "bf16"})
    ->ArgsProduct({{1, 2, 4, 8, 32, 128}, {2048}, {1, 4}, {64, 128}, {1}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(attention_shared)
    ->ArgNames({"rows", "len", "group", "dim", "bf16"})
    ->ArgsProduct({{1, 8, 32}, {2048}, {4}, {128}, {0}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(attention_leaves)
    ->ArgNames({"rows", "len", "group", "dim", "bf16"})
    ->ArgsProduct({{32}, {128, 2048}, {1, 4}, {64, 128}, {1}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton
