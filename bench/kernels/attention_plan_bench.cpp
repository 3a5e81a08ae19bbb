/// Host time of a step's attention: order, plan, packing, for requests of one row, with and without a shared prefix.
///
/// Arguments: requests, own positions of each, shared positions. Llama-3-8B's heads (32 / 8, d = 128) on 132 blocks.
/// The counter `bytes` is the size of the packed plan. In `apart` requests have different lengths; in `paged` nothing
/// is shared.
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "support/attention_makespan.h"
#include "support/random_tree.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 16;
const AttentionShape kShape{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128};

testing::Batch batch_of(const benchmark::State& state) {
  return testing::prefix_batch(static_cast<std::int32_t>(state.range(0)), static_cast<std::int32_t>(state.range(1)),
                               static_cast<std::int32_t>(state.range(2)), kBlockLen);
}

/// Requests of many lengths with four prefixes of two levels.
testing::Batch tenants_of(const benchmark::State& state) {
  std::mt19937 random(3);
  testing::Batch batch;
  const std::vector<BlockId> base = batch.fresh_blocks(static_cast<std::int32_t>(state.range(2)) / kBlockLen);
  std::vector<std::vector<BlockId>> tenants(4, base);
  for (auto& tenant : tenants) {
    const std::vector<BlockId> own = batch.fresh_blocks(32);
    tenant.insert(tenant.end(), own.begin(), own.end());
  }
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    const auto own = static_cast<std::int32_t>(1 + random() % static_cast<unsigned>(2 * state.range(1)));
    const auto& tenant = tenants[random() % 4];
    batch.add(tenant, static_cast<std::int32_t>(tenant.size()) * kBlockLen + own, 1, kBlockLen);
  }
  batch.finish(random);
  return batch;
}

void run(benchmark::State& state, const testing::Batch& batch, bool relay, bool pack) {
  AttentionPlanOptions options;
  options.relay = relay;
  options.costs = testing::costs_of_132_blocks();
  options.deals_pairs = true;
  AttentionPlanner planner;
  std::vector<SequenceRows> ordered;
  std::size_t n_bytes = 0;
  std::size_t n_items = 0;
  for (auto _ : state) {
    ordered.clear();
    if (pack) {
      for (const std::int32_t index : planner.order(batch.sequences))
        ordered.push_back(batch.sequences[static_cast<std::size_t>(index)]);
    }
    const AttentionPlan& plan = planner.plan(pack ? std::span<const SequenceRows>(ordered) : batch.sequences, kShape, options);
    n_items = plan.items.size();
    if (!pack) continue;
    StepInput step;
    append_plan(step, plan);
    step.finish();
    n_bytes = step.bytes().size();
    benchmark::DoNotOptimize(step);
  }
  state.counters["items"] = static_cast<double>(n_items);
  if (pack) state.counters["bytes"] = static_cast<double>(n_bytes);
}

void plan_only(benchmark::State& state) { run(state, batch_of(state), true, false); }
void order_plan_pack(benchmark::State& state) { run(state, batch_of(state), true, true); }
void paged(benchmark::State& state) { run(state, batch_of(state), false, true); }
void tenants_apart(benchmark::State& state) { run(state, tenants_of(state), true, true); }
void order_only(benchmark::State& state) {
  const testing::Batch batch = batch_of(state);
  AttentionPlanner planner;
  for (auto _ : state) benchmark::DoNotOptimize(planner.order(batch.sequences).data());
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"requests", "own", "shared"})->Unit(benchmark::kMicrosecond);
  for (const int requests : {32, 256})
    for (const int own : {128, 512})
      for (const int shared : {2048, 8192}) bench->Args({requests, own, shared});
}
BENCHMARK(plan_only)->Apply(shapes);
BENCHMARK(order_only)->Apply(shapes);
BENCHMARK(order_plan_pack)->Apply(shapes);
BENCHMARK(tenants_apart)->Apply(shapes);
BENCHMARK(paged)->Apply(shapes);

}  // namespace
}  // namespace baton
