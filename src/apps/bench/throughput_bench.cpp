/// `baton bench throughput`: makes the workload and the engine.
#include "apps/bench/throughput_bench.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "apps/bench/throughput_report.h"
#include "apps/output.h"
#include "io/file.h"

namespace baton {

Result<ThroughputReport> run_throughput_bench(const ThroughputBenchOptions& options) {
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  BATON_TRY(const std::optional<Tokenizer> tokenizer, bench_tokenizer(options));
  const std::int32_t max_len = options.model.max_model_len > 0 ? options.model.max_model_len : model.spec.max_position;
  BATON_TRY(const Workload workload, make_workload(options.dataset, {.n_vocab = model.spec.n_vocab,
                                                                     .tokenizer = tokenizer ? &*tokenizer : nullptr,
                                                                     .max_model_len = max_len}));
  ThroughputReport report;
  report.model = model.files.name;
  report.dataset = workload.name;
  report.seed = options.dataset.seed;
  const std::int64_t longest = longest_context(workload);
  auto bench = OfflineBench::load(options, model, longest);
  if (!bench && bench.error().code == ErrorCode::out_of_memory) {
    BATON_TRY(MemoryNeed need, memory_need(model, longest));
    report.shortage = MemoryShortage{bench.error().message, std::move(need)};
    for (const std::string& arm : options.arms) report.arms.push_back({arm, {}});
    return report;
  }
  if (!bench) return tl::unexpected(std::move(bench.error()));
  report.engine = bench->info();
  BATON_TRY(report.arms, bench->run(workload));
  return report;
}

int throughput_bench_main(const ThroughputBenchOptions& options, const std::string& command) {
  use_log_level(options.model);
  const auto failed = [](const Error& error) {
    print_error("baton bench throughput", error);
    return 1;
  };
  const auto report = run_throughput_bench(options);
  if (!report) return failed(report.error());
  write_output(throughput_text(*report, options, command));
  if (!options.json_file.empty())
    if (auto written = write_file(options.json_file, json::dump_pretty(throughput_json(*report, options, command))); !written)
      return failed(written.error());
  return 0;
}

}  // namespace baton
