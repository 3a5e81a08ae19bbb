/// `baton bench attention`: makes plans over scattered blocks, runs them through the backend, and sets times against what must
/// be read.
#include "apps/bench/attention_bench.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "apps/bench/statistics.h"
#include "core/parallel.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/backend.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 16;
/// Keys and values of all layers that are rotated: several times a last-level cache.
constexpr std::int64_t kRotatedBytes = 128LL << 20;

/// Microseconds of wall time, or of this thread's processor time.
class StopWatch {
 public:
  explicit StopWatch(bool processor_time) : clock_(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC), begin_(now()) {}
  double us() const { return now() - begin_; }

 private:
  double now() const {
    timespec time{};
    clock_gettime(clock_, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  }
  clockid_t clock_;
  double begin_;
};

/// Bytes a microsecond of reading a buffer front to back in all threads.
class ReadBandwidth {
 public:
  static Result<ReadBandwidth> make(Backend& backend, int n_threads, bool processor_time) {
    BATON_TRY(Buffer buffer, backend.allocate(kWords * sizeof(std::uint64_t)));
    ReadBandwidth made(std::move(buffer), n_threads, processor_time);
    std::fill_n(made.words(), kWords, 1);
    return made;
  }

  /// Measures once more; `best` keeps the largest.
  void measure() {
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(parallel_.n_threads()));
    const StopWatch watch(processor_time_);
    parallel_.for_each_thread([&](int thread) {
      const std::size_t n = kWords / sums.size();
      const std::uint64_t* at = words() + n * static_cast<std::size_t>(thread);
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += at[i];
      sums[static_cast<std::size_t>(thread)] = sum;
    });
    const double us = watch.us();
    check(sums[0] == kWords / sums.size(), "ReadBandwidth: the buffer changed");
    best_ = std::max(best_, static_cast<double>(kWords * sizeof(std::uint64_t)) / us);
  }
  double best() const { return best_; }

 private:
  static constexpr std::size_t kWords = (256u << 20) / sizeof(std::uint64_t);

  ReadBandwidth(Buffer buffer, int n_threads, bool processor_time)
      : buffer_(std::move(buffer)), parallel_(n_threads), processor_time_(processor_time) {}
  std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(buffer_.data()); }

  Buffer buffer_;
  Parallel parallel_;
  bool processor_time_;
  double best_ = 0;
};

/// A case's storage and block tables, and its plans.
class CaseRunner {
 public:
  static Result<CaseRunner> make(Backend& backend, const AttentionBenchCase& bench_case, DType kv_dtype) {
    CaseRunner runner(backend, bench_case);
    const std::int64_t token_bytes =
        2LL * bench_case.n_kv_heads * bench_case.head_dim * static_cast<std::int64_t>(size_bytes(kv_dtype));
    runner.run_.distinct_bytes =
        token_bytes * (bench_case.shared_len + static_cast<std::int64_t>(bench_case.n_requests) * bench_case.own_len);
    runner.run_.plain_bytes =
        token_bytes * bench_case.n_requests * (static_cast<std::int64_t>(bench_case.shared_len) + bench_case.own_len);
    runner.run_.flops =
        4.0 * bench_case.n_heads * bench_case.head_dim * bench_case.n_requests * (bench_case.shared_len + bench_case.own_len);
    runner.n_layers_ = static_cast<int>(std::clamp<std::int64_t>(kRotatedBytes / runner.run_.distinct_bytes, 1, 256));
    const std::int32_t n_blocks = runner.make_block_tables();
    BATON_TRY(runner.kv_, backend.make_kv_storage(
                              {runner.n_layers_, n_blocks, kBlockLen, bench_case.n_kv_heads, bench_case.head_dim, kv_dtype}));
    runner.kv_->fill_bytes(0x3c);  // small finite numbers: the time does not depend on which
    const auto q_bytes = static_cast<std::size_t>(bench_case.n_requests * bench_case.n_heads * bench_case.head_dim) * 4;
    BATON_TRY(runner.q_, backend.allocate(q_bytes));
    BATON_TRY(runner.out_, backend.allocate(q_bytes));
    const std::vector<float> queries(q_bytes / 4, 0.5f);
    const Shape shape = runner.q_shape();
    backend.copy_from_host(runner.q_.view(DType::f32, shape), view_of(std::span(queries), shape));
    BATON_TRY_VOID(runner.add_arm("paged", kv_dtype));
    if (bench_case.shared_len > 0) BATON_TRY_VOID(runner.add_arm("relay", kv_dtype));
    return runner;
  }

  /// Every arm once, over all layers.
  void measure(bool processor_time) {
    for (Arm& arm : arms_) {
      const StepView step = backend_->upload_step(arm.step);
      const PartialStates partials = arm.partials(run_.of);
      const Shape shape = q_shape();
      backend_->synchronize();
      const StopWatch watch(processor_time);
      for (int layer = 0; layer < n_layers_; ++layer) {
        const auto n_rows = static_cast<std::int64_t>(run_.of.n_requests);
        attention_decode(*backend_, {q_.view(DType::f32, shape), out_.view(DType::f32, shape), partials,
                                     arm.rows.view(DType::u8, {n_rows, 16}), step, 0, layer, kv_.get(), 0.1f});
        attention_merge(*backend_, {out_.view(DType::f32, shape), partials, step, 0});
      }
      backend_->synchronize();
      arm.result.us.push_back(watch.us() / n_layers_);
    }
  }

  /// Forgets what was measured so far (a first pass touches memory).
  void forget() {
    for (Arm& arm : arms_) arm.result.us.clear();
  }

  AttentionBenchRun finish() {
    for (Arm& arm : arms_) run_.arms.push_back(std::move(arm.result));
    return std::move(run_);
  }

 private:
  struct Arm {
    AttentionArmRun result;
    StepInput step;
    Buffer rows, o, m, l;
    std::int32_t n_partials = 0;

    PartialStates partials(const AttentionBenchCase& of) const {
      return {o.view(DType::f32, {n_partials, of.n_heads, of.head_dim}), m.view(DType::f32, {n_partials, of.n_heads}),
              l.view(DType::f32, {n_partials, of.n_heads})};
    }
  };

  CaseRunner(Backend& backend, const AttentionBenchCase& bench_case) : backend_(&backend) { run_.of = bench_case; }

  Shape q_shape() const { return {run_.of.n_requests, run_.of.n_heads, run_.of.head_dim}; }

  /// Block tables over blocks in random order; the number of blocks.
  std::int32_t make_block_tables() {
    const std::int32_t n_shared = run_.of.shared_len / kBlockLen;
    const std::int32_t n_own = (run_.of.own_len + kBlockLen - 1) / kBlockLen;
    std::vector<BlockId> blocks(static_cast<std::size_t>(n_shared + n_own * run_.of.n_requests));
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = BlockId{static_cast<std::int32_t>(i)};
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    for (std::int32_t request = 0; request < run_.of.n_requests; ++request) {
      std::vector<BlockId>& table = tables_.emplace_back(blocks.begin(), blocks.begin() + n_shared);
      const auto own = blocks.begin() + n_shared + static_cast<std::ptrdiff_t>(request) * n_own;
      table.insert(table.end(), own, own + n_own);
    }
    return static_cast<std::int32_t>(blocks.size());
  }

  Result<void> add_arm(const std::string& name, DType kv_dtype) {
    std::vector<SequenceRows> sequences;
    for (std::size_t i = 0; i < tables_.size(); ++i)
      sequences.push_back({SlotId{static_cast<std::int32_t>(i)}, tables_[i], run_.of.shared_len + run_.of.own_len, 1});
    std::vector<SequenceRows> ordered;
    for (const std::int32_t index : depth_first_order(sequences)) ordered.push_back(sequences[static_cast<std::size_t>(index)]);
    const AttentionShape shape{
        run_.of.n_heads, run_.of.n_kv_heads, run_.of.head_dim, static_cast<std::int32_t>(size_bytes(kv_dtype)), 0, kBlockLen};
    AttentionPlanOptions options;
    options.relay = name == "relay";
    options.costs = backend_->info().attention_costs;
    const AttentionPlan plan = plan_attention(ordered, shape, options);
    Arm arm;
    arm.result = {name, {}, plan.stats.kv_bytes_requested, static_cast<std::int64_t>(plan.items.size())};
    arm.n_partials = plan.n_partials;
    fill_step(arm.step, plan);
    BATON_TRY(arm.rows, backend_->allocate(plan.rows.size() * sizeof(TokenRow)));
    const auto n_rows = static_cast<std::int64_t>(plan.rows.size());
    backend_->copy_from_host(arm.rows.view(DType::u8, {n_rows, 16}),
                             {reinterpret_cast<const std::byte*>(plan.rows.data()), DType::u8, {n_rows, 16}});
    const auto n_states = static_cast<std::size_t>(plan.n_partials) * static_cast<std::size_t>(run_.of.n_heads);
    BATON_TRY(arm.o, backend_->allocate(n_states * static_cast<std::size_t>(run_.of.head_dim) * 4));
    BATON_TRY(arm.m, backend_->allocate(n_states * 4));
    BATON_TRY(arm.l, backend_->allocate(n_states * 4));
    arms_.push_back(std::move(arm));
    return {};
  }

  static void fill_step(StepInput& step, const AttentionPlan& plan) {
    step.header().n_rows = static_cast<std::int32_t>(plan.rows.size());
    step.header().n_groups = 1;
    step.header().groups[0] = append_plan(step, plan);
    step.finish();
  }

  Backend* backend_;
  AttentionBenchRun run_;
  int n_layers_ = 1;
  std::vector<std::vector<BlockId>> tables_;
  std::unique_ptr<KvStorage> kv_;
  Buffer q_, out_;
  std::vector<Arm> arms_;
};

constexpr const char* kTitles[][2] = {
    {"W1", "The Flash-Decoding table: 16 query heads, 2 KV heads, d = 128, nothing shared"},
    {"W2", "The RelayAttention figure: Llama-30B attention, 52 heads, d = 128"},
    {"W3", "Llama-3-8B attention: 32 query heads, 8 KV heads, d = 128"},
};

void print_table(const AttentionBenchReport& report, const std::string& table, const std::string& title) {
  fmt::print(
      "\n{}: {}\n\n"
      "| requests | own | shared | paged, us | relay, us | paged / relay | floor, us | best / floor | KV GB/s, requested | as "
      "if read by each | GFLOP/s |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n",
      table, title);
  for (const AttentionBenchRun& run : report.runs) {
    if (run.of.table != table) continue;
    const AttentionArmRun& paged = run.arms.front();
    const AttentionArmRun& best = run.arms.back();
    const double us = best.median_us();
    const double floor_us = static_cast<double>(run.distinct_bytes) / report.read_bytes_per_us;
    const bool has_relay = run.arms.size() > 1;
    fmt::print("| {} | {} | {} | {:.0f} ± {:.0f}% | {} | {} | {:.0f} | {:.2f} | {:.1f} | {:.1f} | {:.0f} |\n",
               run.of.n_requests, run.of.own_len, run.of.shared_len, paged.median_us(), 50 * paged.spread(),
               has_relay ? fmt::format("{:.0f} ± {:.0f}%", us, 50 * best.spread()) : "-",
               has_relay ? fmt::format("{:.2f}", paged.median_us() / us) : "-", floor_us, us / floor_us,
               static_cast<double>(best.kv_bytes) / us / 1e3, static_cast<double>(run.plain_bytes) / us / 1e3,
               run.flops / us / 1e3);
  }
}

json::Value to_json(const AttentionBenchReport& report, const std::string& command) {
  json::Value runs = json::Value::array();
  for (const AttentionBenchRun& run : report.runs) {
    json::Value arms = json::Value::array();
    for (const AttentionArmRun& arm : run.arms)
      arms.push_back({{"arm", arm.arm},
                      {"us", arm.us},
                      {"median_us", arm.median_us()},
                      {"spread", arm.spread()},
                      {"kv_bytes_requested", arm.kv_bytes},
                      {"items", arm.n_items}});
    runs.push_back({{"table", run.of.table},
                    {"heads", run.of.n_heads},
                    {"kv_heads", run.of.n_kv_heads},
                    {"head_dim", run.of.head_dim},
                    {"requests", run.of.n_requests},
                    {"own", run.of.own_len},
                    {"shared", run.of.shared_len},
                    {"distinct_bytes", run.distinct_bytes},
                    {"plain_bytes", run.plain_bytes},
                    {"flops", run.flops},
                    {"arms", std::move(arms)}});
  }
  return {{"command", command},          {"device", report.device},
          {"features", report.features}, {"read_bytes_per_us", report.read_bytes_per_us},
          {"runs", std::move(runs)},     {"left_out", report.left_out}};
}

}  // namespace

double AttentionArmRun::median_us() const { return median_of(us); }

double AttentionArmRun::spread() const { return spread_of(us); }

std::vector<AttentionBenchCase> attention_bench_cases(const std::vector<std::string>& tables) {
  std::vector<AttentionBenchCase> cases;
  const auto wanted = [&](const char* table) { return std::find(tables.begin(), tables.end(), table) != tables.end(); };
  if (wanted("W1")) {
    for (std::int32_t n = 256; n >= 1; n /= 2) cases.push_back({"W1", 16, 2, 128, n, 0, 65536 / n});
    cases.push_back({"W1", 16, 2, 128, 1, 0, 131072});
  }
  if (wanted("W2"))
    for (std::int32_t shared = 64; shared <= 8192; shared *= 2) cases.push_back({"W2", 52, 52, 128, 32, shared, 128});
  if (wanted("W3"))
    for (const std::int32_t n : {8, 32, 128})
      for (const std::int32_t own : {128, 512})
        for (const std::int32_t shared : {512, 2048, 8192, 32768}) cases.push_back({"W3", 32, 8, 128, n, shared, own});
  return cases;
}

Result<AttentionBenchReport> run_attention_bench(const AttentionBenchOptions& options,
                                                 std::span<const AttentionBenchCase> cases) {
  const int n_threads = options.processor_time ? 1 : options.threads;
  const auto kv_dtype = dtype_from_name(options.kv_cache_dtype);
  if (!kv_dtype)
    return fail(ErrorCode::invalid_request, fmt::format("--kv-cache-dtype {}: not a type", options.kv_cache_dtype),
                "kv_cache_dtype");
  BATON_TRY(const std::unique_ptr<Backend> backend, make_backend("cpu", {n_threads, false}));
  const BackendInfo info = backend->info();
  AttentionBenchReport report{info.device, info.features, 0, {}, {}};
  BATON_TRY(ReadBandwidth bandwidth, ReadBandwidth::make(*backend, n_threads, options.processor_time));
  for (const AttentionBenchCase& bench_case : cases) {
    const std::int64_t bytes = 2LL * bench_case.n_kv_heads * bench_case.head_dim *
                               static_cast<std::int64_t>(size_bytes(*kv_dtype)) *
                               (bench_case.shared_len + static_cast<std::int64_t>(bench_case.n_requests) * bench_case.own_len);
    if (bytes + 2 * kRotatedBytes > backend->info().free_memory_bytes) {
      report.left_out.push_back(fmt::format("{}: {} requests, {} shared, {} own: needs {} MiB of keys and values",
                                            bench_case.table, bench_case.n_requests, bench_case.shared_len, bench_case.own_len,
                                            bytes >> 20));
      continue;
    }
    BATON_TRY(CaseRunner runner, CaseRunner::make(*backend, bench_case, *kv_dtype));
    runner.measure(options.processor_time);
    runner.forget();
    for (std::int32_t i = 0; i < options.n_runs; ++i) runner.measure(options.processor_time);
    bandwidth.measure();
    report.runs.push_back(runner.finish());
  }
  report.read_bytes_per_us = bandwidth.best();
  return report;
}

void add_attention_bench_options(CLI::App& app, AttentionBenchOptions& options) {
  app.add_option("--threads", options.threads, "CPU threads (0: all this process may use)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype, "Type of keys and values: bfloat16 or float32")
      ->check(CLI::IsMember({"bfloat16", "float32"}))
      ->capture_default_str();
  app.add_option("--tables", options.tables, "W1 (Flash-Decoding), W2 (RelayAttention), W3 (Llama-3-8B)")
      ->delimiter(',')
      ->check(CLI::IsMember({"W1", "W2", "W3"}))
      ->capture_default_str();
  app.add_option("--runs", options.n_runs, "Runs of each arm, interleaved")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--processor-time", options.processor_time, "One thread, by its processor time: for a machine that others use");
  app.add_option("--json", options.json_file, "File for the numbers");
}

int attention_bench_main(const AttentionBenchOptions& options, const std::string& command) {
  const auto report = run_attention_bench(options, attention_bench_cases(options.tables));
  if (!report) {
    fmt::print(stderr, "baton bench attention: {}\n", report.error().message);
    return 1;
  }
  fmt::print(
      "{}\n{} ({}), keys and values in {}\n"
      "One layer's attention, median of {} runs ± half their range{}. Layers are rotated over at least 128 MiB; blocks in "
      "random order.\n"
      "Floor: distinct keys and values at {:.1f} GB/s, the best plain read of 256 MiB during the run.\n",
      command, report->device, report->features, options.kv_cache_dtype, options.n_runs,
      options.processor_time ? ", processor time of one thread" : "", report->read_bytes_per_us / 1e3);
  for (const auto& [table, title] : kTitles)
    if (std::find(options.tables.begin(), options.tables.end(), table) != options.tables.end())
      print_table(*report, table, title);
  for (const std::string& line : report->left_out) fmt::print("\nLeft out: {}\n", line);
  if (!options.json_file.empty()) {
    if (auto written = write_file(options.json_file, json::dump_pretty(to_json(*report, command))); !written) {
      fmt::print(stderr, "baton bench attention: {}\n", written.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace baton
