/// Makes plans over scattered blocks, sets the contents of the blocks, captures the calls as graphs and times replays.
#include "bench/attention/attention_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bench/attention/read_rate.h"
#include "bench/report/statistics.h"
#include "plan/attention_plan.h"

namespace baton {
namespace {

constexpr int kMostLayers = 256;
/// Room for the step of any case; captured graphs find it at one address.
constexpr std::size_t kStepBytes = 64 << 20;
constexpr int kPlanningRuns = 200;

std::int32_t n_own_blocks(const AttentionBenchCase& of) { return (of.own_len + kBenchBlockLen - 1) / kBenchBlockLen; }

std::int32_t n_blocks_of(const AttentionBenchCase& of) {
  std::int32_t n_blocks = of.n_requests * n_own_blocks(of);
  for (const AttentionLevel& level : of.shared_levels()) n_blocks += level.n_nodes * (level.len / kBenchBlockLen);
  return n_blocks;
}

/// The block tables of all requests, over blocks in random order.
std::vector<std::vector<BlockId>> block_tables(const AttentionBenchCase& of) {
  std::vector<BlockId> blocks(static_cast<std::size_t>(n_blocks_of(of)));
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = BlockId{static_cast<std::int32_t>(i)};
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  std::vector<std::vector<BlockId>> tables(static_cast<std::size_t>(of.n_requests));
  auto next = blocks.cbegin();
  const auto append_level = [&](std::int32_t n_nodes, std::int32_t n_blocks) {
    for (std::int32_t request = 0; request < of.n_requests; ++request) {
      const auto node = static_cast<std::int64_t>(request) * n_nodes / of.n_requests;
      std::vector<BlockId>& table = tables[static_cast<std::size_t>(request)];
      table.insert(table.end(), next + node * n_blocks, next + (node + 1) * n_blocks);
    }
    next += static_cast<std::ptrdiff_t>(n_nodes) * n_blocks;
  };
  for (const AttentionLevel& level : of.shared_levels()) append_level(level.n_nodes, level.len / kBenchBlockLen);
  append_level(of.n_requests, n_own_blocks(of));
  return tables;
}

std::vector<SequenceRows> sequences_of(const AttentionBenchCase& of, const std::vector<std::vector<BlockId>>& tables) {
  std::vector<SequenceRows> sequences;
  for (std::size_t i = 0; i < tables.size(); ++i)
    sequences.push_back({SlotId{static_cast<std::int32_t>(i)}, tables[i], of.shared_len + of.own_len, 1});
  return sequences;
}

std::vector<SequenceRows> in_order(std::span<const SequenceRows> sequences) {
  std::vector<SequenceRows> ordered;
  for (const std::int32_t index : depth_first_order(sequences)) ordered.push_back(sequences[static_cast<std::size_t>(index)]);
  return ordered;
}

void pack(StepInput& step, const AttentionPlan& plan) {
  step.header().n_rows = static_cast<std::int32_t>(plan.rows.size());
  append_plan(step, plan);
  step.finish();
}

std::string costs_text(const AttentionCosts& costs, const AttentionShape& shape) {
  return fmt::format(
      "costs: memory {:.0f} GB/s, re-reads {:.0f} GB/s up to {:.1f} MB of a node, matmuls {:.1f} TFLOP/s, partial states "
      "{:.0f} "
      "GB/s, {} us an item, {} workers, {} rows a read\n",
      costs.memory_bytes_per_us / 1e3, costs.cache_bytes_per_us / 1e3, static_cast<double>(costs.cache_bytes) / 1e6,
      costs.flops_per_us / 1e6, costs.partial_bytes_per_us / 1e3, costs.item_us, costs.n_workers, rows_a_read(costs, shape));
}

/// Normally distributed numbers in a stored dtype. They are drawn once; longer runs join pieces from random places.
class NormalElements {
 public:
  explicit NormalElements(DType dtype) : element_bytes_(size_bytes(dtype)), pool_(kElements * element_bytes_) {
    std::normal_distribution<float> normal;
    visit_stored_float(dtype, [&]<class T>(T) {
      T* at = reinterpret_cast<T*>(pool_.data());
      for (std::size_t i = 0; i < kElements; ++i) at[i] = T(normal(random_));
    });
  }
  void fill(std::span<std::byte> out) {
    const std::size_t piece_bytes = kPiece * element_bytes_;
    for (std::size_t at = 0; at < out.size(); at += piece_bytes) {
      const std::size_t from = random_() % (kElements - kPiece) * element_bytes_;
      std::memcpy(out.data() + at, pool_.data() + from, std::min(piece_bytes, out.size() - at));
    }
  }

 private:
  static constexpr std::size_t kElements = 1 << 20;
  static constexpr std::size_t kPiece = 1 << 14;

  std::mt19937 random_{7};
  std::size_t element_bytes_;
  std::vector<std::byte> pool_;
};

}  // namespace

double AttentionArmRun::median_us() const { return median_of(us); }

double AttentionArmRun::spread() const { return spread_of(us); }

const AttentionArmRun* AttentionBenchRun::arm(std::string_view name) const {
  for (const AttentionArmRun& run : arms)
    if (run.arm == name) return &run;
  return nullptr;
}

int AttentionRotation::n_layers(std::int64_t distinct_bytes) const {
  const std::int64_t wanted = (bytes + distinct_bytes - 1) / distinct_bytes;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, fewest_layers, kMostLayers));
}

struct AttentionCaseRunner::Arm {
  AttentionArmRun result;
  StepInput step;
  Buffer rows, o, m, l;
  std::unique_ptr<CapturedGraph> graph;
};

AttentionCaseRunner::AttentionCaseRunner(Backend& backend, const AttentionBenchCase& of, DType kv_dtype,
                                         const AttentionRotation& rotation, bool batch_invariant)
    : backend_(&backend),
      q_dtype_(kv_dtype == DType::f8_e4m3 ? DType::bf16 : kv_dtype),
      batch_invariant_(batch_invariant),
      tables_(block_tables(of)) {
  run_.of = of;
  run_.kv_dtype = kv_dtype;
  run_.distinct_bytes = of.token_bytes(kv_dtype) * of.distinct_tokens();
  run_.plain_bytes = of.token_bytes(kv_dtype) * of.plain_tokens();
  run_.query_bytes = (q_shape().n_elements() + out_shape().n_elements()) * static_cast<std::int64_t>(size_bytes(q_dtype_));
  run_.flops = of.flops();
  run_.n_layers = rotation.n_layers(run_.distinct_bytes);
  run_.n_calls = (rotation.fewest_calls + run_.n_layers - 1) / run_.n_layers * run_.n_layers;
}

AttentionCaseRunner::AttentionCaseRunner(AttentionCaseRunner&&) noexcept = default;

AttentionCaseRunner::~AttentionCaseRunner() = default;

Result<AttentionCaseRunner> AttentionCaseRunner::make(Backend& backend, const AttentionBenchCase& of, DType kv_dtype,
                                                      const AttentionRotation& rotation, const std::vector<std::string>& arms,
                                                      bool batch_invariant) {
  AttentionCaseRunner runner(backend, of, kv_dtype, rotation, batch_invariant);
  BATON_TRY_VOID(backend.reserve_steps(kStepBytes));
  BATON_TRY_VOID(runner.fill(n_blocks_of(of)));
  const auto wanted = [&](const char* arm) { return std::find(arms.begin(), arms.end(), arm) != arms.end(); };
  if (wanted("paged") || of.shared_len == 0) BATON_TRY_VOID(runner.add_arm("paged"));
  if (wanted("relay") && of.shared_len > 0) BATON_TRY_VOID(runner.add_arm("relay"));
  return runner;
}

Result<void> AttentionCaseRunner::fill(std::int32_t n_blocks) {
  const AttentionBenchCase& of = run_.of;
  KvShape shape{run_.n_layers, n_blocks, kBenchBlockLen, of.n_kv_heads, of.head_dim, run_.kv_dtype};
  shape.latent_dim = of.latent_dim;
  BATON_TRY(kv_, backend_->make_kv_storage(shape));
  NormalElements elements(run_.kv_dtype);
  std::vector<std::byte> block(static_cast<std::size_t>(kv_->shape().block_bytes()));
  for (std::int32_t i = 0; i < n_blocks; ++i) {
    elements.fill(block);
    kv_->import_block(BlockId{i}, {block.data(), DType::u8, {static_cast<std::int64_t>(block.size())}});
  }
  std::vector<std::byte> queries(static_cast<std::size_t>(q_shape().n_elements()) * size_bytes(q_dtype_));
  NormalElements(q_dtype_).fill(queries);
  BATON_TRY(q_, backend_->allocate(queries.size()));
  BATON_TRY(out_, backend_->allocate(static_cast<std::size_t>(out_shape().n_elements()) * size_bytes(q_dtype_)));
  backend_->copy_from_host(q_.view(q_dtype_, q_shape()), {queries.data(), q_dtype_, q_shape()});
  return {};
}

Result<void> AttentionCaseRunner::add_arm(const std::string& name) {
  AttentionPlanOptions options;
  options.relay = name == "relay";
  options.batch_invariant = batch_invariant_;
  options.costs = backend_->tuning().attention_costs;
  options.deals_pairs = backend_->capabilities().deals_pairs;
  const AttentionShape shape = run_.of.attention_shape(run_.kv_dtype);
  const AttentionPlan plan = plan_attention(in_order(sequences_of(run_.of, tables_)), shape, options);
  auto arm = std::make_unique<Arm>();
  pack(arm->step, plan);
  arm->result = {name,
                 {},
                 plan.stats.kv_bytes_requested,
                 static_cast<std::int64_t>(plan.items.size()),
                 plan.n_partials,
                 static_cast<std::int64_t>(arm->step.bytes().size()),
                 costs_text(options.costs.of_shape(shape), shape) + to_string(plan)};
  BATON_TRY(arm->rows, backend_->allocate(plan.rows.size() * sizeof(TokenRow)));
  const Shape rows_shape{static_cast<std::int64_t>(plan.rows.size()), sizeof(TokenRow)};
  backend_->copy_from_host(arm->rows.view(DType::u8, rows_shape),
                           {reinterpret_cast<const std::byte*>(plan.rows.data()), DType::u8, rows_shape});
  const auto n_states = static_cast<std::size_t>(plan.n_partials) * static_cast<std::size_t>(run_.of.n_heads);
  BATON_TRY(arm->o, backend_->allocate(n_states * static_cast<std::size_t>(shape.v_dim()) * 4));
  BATON_TRY(arm->m, backend_->allocate(n_states * 4));
  BATON_TRY(arm->l, backend_->allocate(n_states * 4));
  BATON_TRY_VOID(capture(*arm));
  arms_.push_back(std::move(arm));
  return {};
}

Result<void> AttentionCaseRunner::capture(Arm& arm) {
  const AttentionBenchCase& of = run_.of;
  AttentionArgs args;
  args.q = q_.view(q_dtype_, q_shape());
  args.out = out_.view(q_dtype_, out_shape());
  args.partials = {arm.o.view(DType::f32, {arm.result.n_partials, of.n_heads, kv_->shape().v_dim()}),
                   arm.m.view(DType::f32, {arm.result.n_partials, of.n_heads}),
                   arm.l.view(DType::f32, {arm.result.n_partials, of.n_heads})};
  args.rows = arm.rows.view(DType::u8, {of.n_requests, sizeof(TokenRow)});
  args.step = backend_->upload_step(arm.step);
  args.kv = kv_.get();
  args.scale = 1 / std::sqrt(static_cast<float>(of.head_dim));
  args.merge = true;
  backend_->synchronize();
  BATON_TRY(arm.graph,
            backend_->capture([backend = backend_, n_calls = run_.n_calls, n_layers = run_.n_layers, args]() mutable {
              for (int call = 0; call < n_calls; ++call) {
                args.layer = call % n_layers;
                attention(*backend, args);
              }
            }));
  return {};
}

void AttentionCaseRunner::measure(bool processor_time) {
  for (const std::unique_ptr<Arm>& arm : arms_) {
    backend_->upload_step(arm->step);
    if (processor_time) {
      backend_->synchronize();
      const StopWatch watch(true);
      arm->graph->replay();
      backend_->synchronize();
      arm->result.us.push_back(watch.us() / run_.n_calls);
    } else {
      // The upload still runs while the replay is enqueued after the first mark, so the launch costs no idle time of
      // the device.
      arm->result.us.push_back(backend_->time_us([&] { arm->graph->replay(); }) / run_.n_calls);
    }
  }
}

void AttentionCaseRunner::forget() {
  for (const std::unique_ptr<Arm>& arm : arms_) arm->result.us.clear();
}

AttentionBenchRun AttentionCaseRunner::finish() {
  for (const std::unique_ptr<Arm>& arm : arms_) run_.arms.push_back(std::move(arm->result));
  arms_.clear();
  return std::move(run_);
}

PlanningTime time_planning(const Backend& backend, const AttentionBenchCase& of, DType kv_dtype, bool batch_invariant) {
  const std::vector<std::vector<BlockId>> tables = block_tables(of);
  const std::vector<SequenceRows> sequences = sequences_of(of, tables);
  AttentionPlanOptions options;
  options.batch_invariant = batch_invariant;
  options.costs = backend.tuning().attention_costs;
  options.deals_pairs = backend.capabilities().deals_pairs;
  PlanningTime result{of};
  std::vector<double> order, planning, packing;
  for (int run = 0; run < kPlanningRuns; ++run) {
    const StopWatch ordering(false);
    const std::vector<SequenceRows> ordered = in_order(sequences);
    order.push_back(ordering.us());
    const StopWatch plan_watch(false);
    const AttentionPlan plan = plan_attention(ordered, of.attention_shape(kv_dtype), options);
    planning.push_back(plan_watch.us());
    StepInput step;
    const StopWatch pack_watch(false);
    pack(step, plan);
    packing.push_back(pack_watch.us());
    result.step_bytes = static_cast<std::int64_t>(step.bytes().size());
    result.n_items = static_cast<std::int64_t>(plan.items.size());
  }
  result.order_us = median_of(order);
  result.plan_us = median_of(planning);
  result.pack_us = median_of(packing);
  return result;
}

}  // namespace baton
