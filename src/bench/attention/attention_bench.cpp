/// `baton bench attention`: the options, the order of the runs, and the read rates measured between them.
#include "bench/attention/attention_bench.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "bench/attention/read_rate.h"
#include "bench/report/machine_report.h"
#include "cli/options.h"
#include "cli/output.h"
#include "io/file.h"
#include "kernels/backend.h"

namespace baton {
namespace {

/// Size of the keys and values of all rotated layers: several times a last-level cache, and more than four times an
/// H200's L2.
constexpr AttentionRotation kCpuRotation{128LL << 20, 1, 1};
constexpr AttentionRotation kCudaRotation{256LL << 20, 2, 32};
constexpr std::int32_t kCpuRuns = 7;
constexpr std::int32_t kCudaRuns = 25;
constexpr int kWarmUp = 3;
/// A read this long runs at the device's full rate.
constexpr std::int64_t kLongReadBytes = 2LL << 30;

Result<DType> dtype_of(const AttentionBenchOptions& options, const AttentionBenchCase& of, bool is_asynchronous) {
  if (options.kv_cache_dtype == "auto") return is_asynchronous ? table_dtype(of.table) : DType::bf16;
  if (const auto dtype = dtype_from_name(options.kv_cache_dtype)) return *dtype;
  return fail(ErrorCode::invalid_request, fmt::format("--kv-cache-dtype {}: not a type", options.kv_cache_dtype),
              "kv_cache_dtype");
}

/// Why a case does not fit memory, or nothing.
std::optional<std::string> memory_obstacle(const Backend& backend, const AttentionBenchCase& of, DType kv_dtype,
                                           const AttentionRotation& rotation) {
  const std::int64_t bytes = of.token_bytes(kv_dtype) * of.distinct_tokens();
  const std::int64_t needed = bytes * rotation.n_layers(bytes) + rotation.bytes;
  if (needed <= backend.free_memory_bytes()) return std::nullopt;
  return fmt::format("{}: {} requests, {} shared, {} own: needs {} MiB of keys and values", of.table, of.n_requests,
                     shared_text(of), of.own_len, needed >> 20);
}

/// Read rates of the run: on CUDA for each case's bytes and for long reads, on a CPU the best of many reads.
class Ceilings {
 public:
  static Result<Ceilings> make(Backend& backend, const AttentionBenchOptions& options, int n_threads) {
    Ceilings made;
    if (backend.capabilities().is_asynchronous) {
      BATON_TRY(made.cuda_, CudaRead::make(options.device_number));
    } else {
      BATON_TRY(made.cpu_, CpuReadRate::make(backend, n_threads, options.processor_time));
    }
    return made;
  }
  void measure(AttentionBenchRun& run) {
    if (cpu_) cpu_->measure();
    if (cuda_) run.read_us = cuda_->us(run.distinct_bytes);
  }
  double bytes_per_us() {
    if (cpu_) {
      if (cpu_->best() == 0) cpu_->measure();
      return cpu_->best();
    }
    return static_cast<double>(kLongReadBytes) / cuda_->us(kLongReadBytes);
  }

 private:
  std::optional<CpuReadRate> cpu_;
  std::optional<CudaRead> cuda_;
};

/// Shapes whose planning is timed: many requests behind one prefix, in groups, and without a shared prefix.
std::vector<AttentionBenchCase> planning_cases() {
  return {{"256 requests", 32, 8, 128, 256, 2048, 512, 1},
          {"16 groups", 32, 8, 128, 256, 2048, 512, 16},
          {"nothing shared", 32, 8, 128, 256, 0, 512, 1}};
}

void print_head(const AttentionBenchOptions& options, const AttentionBenchReport& report, const std::string& command) {
  print_output("{}\n{} ({}), blocks of {} tokens in random order, random normal data\n", command, report.device,
               report.features, kBenchBlockLen);
  if (report.is_asynchronous) {
    print_output(
        "One layer's attention and merge, us: median of {} replays of a captured graph ± half their range, arms interleaved; "
        "at "
        "least 32 calls a graph, layers rotated over at least 256 MiB.\n"
        "read: a read-only kernel over the distinct keys and values, timed the same way in this run. floor: distinct keys, "
        "values, "
        "queries and outputs at {:.3f} TB/s, a read of 2 GiB in this run.\n"
        "Columns in brackets: figures of other programs, measured on an H200 on another day (FlashInfer, PyTorch) or "
        "published (A100).\n",
        options.n_runs > 0 ? options.n_runs : kCudaRuns, report.read_bytes_per_us / 1e6);
  } else {
    print_output(
        "One layer's attention and merge, median of {} runs ± half their range{}. Layers are rotated over at least 128 MiB.\n"
        "Floor: distinct keys and values at {:.1f} GB/s, the best plain read of 256 MiB during the run.\n",
        options.n_runs > 0 ? options.n_runs : kCpuRuns, options.processor_time ? ", processor time of one thread" : "",
        report.read_bytes_per_us / 1e3);
  }
}

}  // namespace

Result<std::vector<AttentionBenchCase>> cases_of(const AttentionBenchOptions& options) {
  const AttentionFreeShape& free = options.free;
  if (free.requests.empty() && free.trees.empty()) return attention_bench_cases(options.tables);
  if (free.n_heads % free.n_kv_heads != 0)
    return fail(ErrorCode::invalid_request,
                fmt::format("--heads {} is not a multiple of --kv-heads {}", free.n_heads, free.n_kv_heads), "heads");
  if (free.latent_dim > 0 && free.n_kv_heads != 1)
    return fail(ErrorCode::invalid_request,
                fmt::format("--latent-dim needs --kv-heads 1, not {}: all heads share one key", free.n_kv_heads), "kv_heads");
  if (free.latent_dim >= free.head_dim)
    return fail(ErrorCode::invalid_request,
                fmt::format("--latent-dim {} must be less than --head-dim {}", free.latent_dim, free.head_dim), "latent_dim");
  std::vector<AttentionBenchCase> cases;
  for (const std::string& tree : free.trees) {
    BATON_TRY(auto levels, parse_attention_tree(tree, kBenchBlockLen));
    cases.push_back(tree_case("free", {free.n_heads, free.n_kv_heads, free.head_dim, free.latent_dim}, std::move(levels)));
  }
  for (const std::int32_t requests : free.requests)
    for (const std::int32_t own : free.own)
      for (const std::int32_t shared : free.shared) {
        if (shared % kBenchBlockLen != 0)
          return fail(ErrorCode::invalid_request,
                      fmt::format("--shared {}: prefixes are whole blocks of {} tokens", shared, kBenchBlockLen), "shared");
        if (free.n_groups > requests)
          return fail(ErrorCode::invalid_request,
                      fmt::format("--groups {}: more than the {} requests", free.n_groups, requests), "groups");
        cases.push_back(
            {"free", free.n_heads, free.n_kv_heads, free.head_dim, requests, shared, own, free.n_groups, {}, free.latent_dim});
      }
  return cases;
}

Result<AttentionBenchReport> run_attention_bench(const AttentionBenchOptions& options,
                                                 std::span<const AttentionBenchCase> cases) {
  const int n_threads = options.processor_time ? 1 : options.threads;
  BackendOptions backend_options;
  backend_options.n_threads = n_threads;
  backend_options.device = options.device_number;
  backend_options.attention_blocks = options.attention_blocks;
  backend_options.batch_invariant = options.batch_invariant;
  BATON_TRY(const std::unique_ptr<Backend> backend, make_backend(options.device, backend_options));
  const bool is_asynchronous = backend->capabilities().is_asynchronous;
  if (options.processor_time && is_asynchronous)
    return fail(ErrorCode::invalid_request, "--processor-time is for a CPU: a device has its own clock", "processor_time");
  BATON_TRY_VOID(dtype_of(options, {}, is_asynchronous));
  const BackendInfo info = backend->info();
  AttentionBenchReport report;
  report.device = info.device;
  report.features = info.features;
  report.is_asynchronous = is_asynchronous;
  BATON_TRY(Ceilings ceilings, Ceilings::make(*backend, options, n_threads));
  const AttentionRotation& rotation = is_asynchronous ? kCudaRotation : kCpuRotation;
  const std::int32_t n_runs = options.n_runs > 0 ? options.n_runs : is_asynchronous ? kCudaRuns : kCpuRuns;
  for (const AttentionBenchCase& of : cases) {
    BATON_TRY(const DType kv_dtype, dtype_of(options, of, is_asynchronous));
    if (auto obstacle = memory_obstacle(*backend, of, kv_dtype, rotation)) {
      report.left_out.push_back(*std::move(obstacle));
      continue;
    }
    BATON_TRY(AttentionCaseRunner runner,
              AttentionCaseRunner::make(*backend, of, kv_dtype, rotation, options.arms, options.batch_invariant));
    for (int i = 0; i < (is_asynchronous ? kWarmUp : 1); ++i) runner.measure(options.processor_time);
    runner.forget();
    for (std::int32_t i = 0; i < n_runs; ++i) runner.measure(options.processor_time);
    AttentionBenchRun run = runner.finish();
    ceilings.measure(run);
    report.runs.push_back(std::move(run));
  }
  report.read_bytes_per_us = ceilings.bytes_per_us();
  for (const AttentionBenchCase& of : planning_cases())
    report.planning.push_back(time_planning(*backend, of, DType::bf16, options.batch_invariant));
  return report;
}

int attention_bench_main(const AttentionBenchOptions& options, const std::string& command) {
  const auto failed = [](const Error& error) {
    print_error("baton bench attention", error);
    return 1;
  };
  const auto cases = cases_of(options);
  if (!cases) return failed(cases.error());
  if (const auto can_write = check_json_file(options.json_file); !can_write) return failed(can_write.error());
  const auto report = run_attention_bench(options, *cases);
  if (!report) return failed(report.error());
  if (options.explain) print_output("{}\n", attention_plans(*report));
  print_head(options, *report, command);
  print_output("{}\n{}", attention_tables(*report), planning_lines(*report));
  if (!options.json_file.empty())
    if (auto written = write_file(options.json_file, json::dump_pretty(attention_json(*report, command))); !written)
      return failed(written.error());
  return 0;
}

}  // namespace baton
