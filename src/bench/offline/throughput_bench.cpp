/// `baton bench throughput`: makes the workload and the engine.
#include "bench/offline/throughput_bench.h"

#include <utility>

#include "bench/offline/throughput_report.h"
#include "bench/report/machine_report.h"

namespace baton {

Result<ThroughputReport> run_throughput_bench(const ThroughputBenchOptions& options) {
  BATON_TRY(OfflineBench bench, OfflineBench::prepare(options, {&options.dataset, 1}));
  ThroughputReport report;
  report.model = bench.model_name();
  report.workload = summarize(bench.workloads().front());
  BATON_TRY(report.shortage, bench.load());
  if (report.shortage) return report;
  report.engine = bench.info();
  BATON_TRY(report.arms, bench.run(bench.workloads().front()));
  return report;
}

int throughput_bench_main(const ThroughputBenchOptions& options, const std::string& command) {
  return run_benchmark("baton bench throughput", options, command, run_throughput_bench, throughput_text, throughput_json);
}

}  // namespace baton
