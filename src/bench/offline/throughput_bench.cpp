/// `baton bench throughput`: makes the workload and the engine.
#include "bench/offline/throughput_bench.h"

#include <utility>

#include "bench/offline/throughput_report.h"
#include "bench/report/machine_report.h"

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
  report.workload = summarize(workload);
  const std::int64_t longest = longest_context(workload);
  auto engine = load_bench_engine(model, longest);
  if (!engine) {
    BATON_TRY(report.shortage, shortage_behind(engine.error(), model, longest));
    return report;
  }
  report.engine = (*engine)->info();
  BATON_TRY(report.arms, OfflineBench(options, std::move(*engine)).run(workload));
  return report;
}

int throughput_bench_main(const ThroughputBenchOptions& options, const std::string& command) {
  use_log_level(options.model);
  const auto report = run_throughput_bench(options);
  if (!report) return report_failure("baton bench throughput", report.error());
  return write_report("baton bench throughput", throughput_text(*report, options, command),
                      throughput_json(*report, options, command), options.json_file);
}

}  // namespace baton
