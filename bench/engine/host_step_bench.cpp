/// Host time of a step of the engine, on a device that computes nothing: plan, build, commit, publish.
///
/// `decode` has this many decoding sequences, each with 1056 to 1264 positions, of which `shared` are a common prefix.
/// `blocked` has 256 of them and this many requests that wait for room in the cache. `turnover` has this many
/// sequences that end after 64 tokens each and are replaced, so that some begin and end in each step. Llama-3-8B's
/// heads (32 / 8, d = 128) on 132 blocks. Counters are medians over the steps, in microseconds:
///
///     plan       scheduler
///     build      batch builder, including attention planning, and the executor's submission
///     attention  part of build: order, plan and packing of attention, measured alone over the same lengths
///     commit     reading of results, and their application by the scheduler
///     publish    metrics, events, ended requests and new requests
///     all        the whole step; `least` is the shortest one, which other programs disturb least
///     faults     page faults per step: memory that the process touches for the first time
#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "core/check.h"
#include "engine/engine.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/weights.h"
#include "support/null_backend.h"
#include "support/random_tree.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kBlockLen = 16;
constexpr std::int32_t kPromptLen = 1056;
constexpr std::int32_t kPrefixLen = 1024;
constexpr std::int32_t kMaxTokens = 4096;

/// Heads of Llama-3-8B; no other property of a model affects the host time.
ModelSpec spec() {
  auto spec = parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 16,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 16, "vocab_size": 64,
      "max_position_embeddings": 8192, "torch_dtype": "bfloat16"})",
                               "host_step_bench");
  check(spec.has_value(), "host_step_bench: no spec");
  return std::move(*spec);
}

double us(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

/// Number of pages that this process has touched for the first time.
std::int64_t n_page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class HostSteps {
 public:
  /// Makes an engine whose cache holds `n_blocks` blocks.
  HostSteps(std::int32_t n_sequences, std::int64_t n_blocks) {
    auto backend = std::make_unique<bench::NullBackend>();
    backend_ = backend.get();
    auto weights = random_weights(spec(), *backend, DType::bf16, 1, 1);
    check(weights.has_value(), "host_step_bench: no weights");
    auto model = std::make_unique<Model>(spec(), std::move(*weights));
    EngineOptions options;
    options.max_num_seqs = n_sequences;
    options.max_num_batched_tokens = 8192;
    options.kv_cache_bytes = n_blocks * model->kv_shapes(1, kBlockLen, DType::bf16)[0].block_bytes();
    auto engine = Engine::create(options, std::move(backend), std::move(model));
    check(engine.has_value(), [&] { return engine.error().message; });
    engine_ = std::move(*engine);
  }

  void submit(bool shares, std::int32_t max_tokens) {
    std::vector<TokenId> prompt;
    std::uint32_t state = static_cast<std::uint32_t>(++n_submitted_) * 2654435761U + 12345U;
    for (std::int32_t i = 0; i < kPromptLen; ++i) {
      state = state * 1664525U + 1013904223U;
      prompt.push_back(shares && i < kPrefixLen ? i % 61 : static_cast<TokenId>(3 + (state >> 10) % 60));
    }
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = max_tokens;
    check(engine_->submit(std::move(request)).has_value(), "host_step_bench: refused");
  }

  /// Runs one step and times its parts. Returns the number of ended requests.
  int step() {
    const double backend_us_before = backend_->own_us();
    const Clock::time_point begin = Clock::now();
    engine_->step();
    const Clock::time_point end = Clock::now();
    note(begin, end, backend_->own_us() - backend_us_before);
    int n_ended = 0;
    for (const Event& event : engine_->wait_events(std::chrono::milliseconds(0))) n_ended += event.finished ? 1 : 0;
    return n_ended;
  }

  /// Steps until all sequences that can run decode.
  void warm_up(std::int32_t n_sequences) {
    while (engine_->metrics().num_requests_running.value() < n_sequences) step();
    for (int i = 0; i < 20; ++i) step();
    forget();
  }

  void forget() {
    plan_.clear(), build_.clear(), commit_.clear(), publish_.clear(), all_.clear();
    n_faults_before_ = n_page_faults();
  }

  void report(benchmark::State& state) {
    state.counters["plan"] = median(plan_);
    state.counters["build"] = median(build_);
    state.counters["commit"] = median(commit_);
    state.counters["publish"] = median(publish_);
    state.counters["all"] = median(all_);
    state.counters["least"] = all_.empty() ? 0 : *std::ranges::min_element(all_);
    state.counters["faults"] =
        static_cast<double>(n_page_faults() - n_faults_before_) / static_cast<double>(state.iterations());
  }

  double total_us = 0;  ///< of the last step

 private:
  /// The parts of a step that planned one step and committed the previous one.
  void note(Clock::time_point begin, Clock::time_point end, double backend_us) {
    total_us = us(begin, end) - backend_us;
    using What = StepRecord::What;
    const std::vector<StepRecord> records = engine_->recent_steps();
    if (records.size() < 6) return;
    const std::span<const StepRecord> last = std::span(records).last(6);
    constexpr What kOrder[] = {What::plan_begin, What::plan_end,     What::run_begin,
                               What::run_end,    What::commit_begin, What::commit_end};
    for (std::size_t i = 0; i < 6; ++i)
      if (last[i].what != kOrder[i] || last[i].at < begin) return;
    plan_.push_back(us(last[0].at, last[1].at));
    build_.push_back(us(last[1].at, last[2].at) - backend_us);
    commit_.push_back(us(last[3].at, last[5].at));
    publish_.push_back(us(begin, last[0].at) + us(last[5].at, end));
    all_.push_back(total_us);
  }

  bench::NullBackend* backend_ = nullptr;  ///< the engine's
  std::unique_ptr<Engine> engine_;
  std::int64_t n_submitted_ = 0;
  std::int64_t n_faults_before_ = 0;
  std::vector<double> plan_, build_, commit_, publish_, all_;
};

/// Microseconds of a step's attention planning, from its batch to its sections.
double attention_us(std::int32_t n_sequences, bool shares) {
  const std::int32_t shared = shares ? kPrefixLen : 0;
  const testing::Batch batch = testing::prefix_batch(n_sequences, kPromptLen + 100 - shared, shared, kBlockLen);
  const AttentionShape shape{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128};
  AttentionPlanOptions options;
  options.costs = testing::costs_of_132_blocks();
  AttentionPlanner planner;
  std::vector<double> times;
  std::vector<SequenceRows> ordered;
  for (int i = 0; i < 30; ++i) {
    const Clock::time_point begin = Clock::now();
    ordered.clear();
    for (const std::int32_t index : planner.order(batch.sequences))
      ordered.push_back(batch.sequences[static_cast<std::size_t>(index)]);
    StepInput step;
    append_plan(step, planner.plan(ordered, shape, options));
    step.finish();
    benchmark::DoNotOptimize(step);
    times.push_back(us(begin, Clock::now()));
  }
  return median(times);
}

std::int64_t blocks_for(std::int64_t n_sequences, std::int32_t max_tokens) {
  return n_sequences * ((kPromptLen + std::min(max_tokens, 512)) / kBlockLen + 2) + 1024;
}

void decode(benchmark::State& state) {
  const auto n = static_cast<std::int32_t>(state.range(0));
  const bool shares = state.range(1) > 0;
  HostSteps steps(n, blocks_for(n, kMaxTokens));
  for (std::int32_t i = 0; i < n; ++i) steps.submit(shares, kMaxTokens);
  steps.warm_up(n);
  for (auto _ : state) {
    steps.step();
    state.SetIterationTime(steps.total_us / 1e6);
  }
  steps.report(state);
  state.counters["attention"] = attention_us(n, shares);
}

void blocked(benchmark::State& state) {
  constexpr std::int32_t kRunning = 256;
  HostSteps steps(2 * kRunning, kRunning * (kPromptLen / kBlockLen + 12));
  for (std::int32_t i = 0; i < kRunning; ++i) steps.submit(false, 160);
  steps.warm_up(kRunning);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(state.range(0)); ++i) steps.submit(false, 4096);
  steps.step();
  steps.forget();
  for (auto _ : state) {
    steps.step();
    state.SetIterationTime(steps.total_us / 1e6);
  }
  steps.report(state);
}

void turnover(benchmark::State& state) {
  const auto n = static_cast<std::int32_t>(state.range(0));
  const bool shares = state.range(1) > 0;
  HostSteps steps(n, blocks_for(n, 64));
  for (std::int32_t i = 0; i < n; ++i) steps.submit(shares, 1 + i % 64);
  int n_ended = 0;
  for (int i = 0; i < 200; ++i)
    for (n_ended = steps.step(); n_ended > 0; --n_ended) steps.submit(shares, 64);
  steps.forget();
  for (auto _ : state) {
    for (n_ended = steps.step(); n_ended > 0; --n_ended) steps.submit(shares, 64);
    state.SetIterationTime(steps.total_us / 1e6);
  }
  steps.report(state);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sequences", "shared"})->Unit(benchmark::kMicrosecond)->UseManualTime()->Iterations(80);
  for (const int n : {64, 256, 1024, 4096})
    for (const int shared : {0, kPrefixLen}) bench->Args({n, shared});
}
BENCHMARK(decode)->Apply(sizes);
BENCHMARK(turnover)->Apply(sizes);
BENCHMARK(blocked)
    ->ArgNames({"waiting"})
    ->Arg(0)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMicrosecond)
    ->UseManualTime()
    ->Iterations(80);

}  // namespace
}  // namespace baton
