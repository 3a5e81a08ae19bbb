/// `baton bench startup`: starts processes, and what each of them measures.
#include "bench/startup/startup_bench.h"

#include <chrono>
#include <fstream>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "bench/dataset/dataset.h"
#include "bench/engine/bench_model.h"
#include "bench/offline/offline_run.h"
#include "bench/report/machine_report.h"
#include "bench/startup/child_process.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "load/load_engine.h"

namespace baton {
namespace {

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<double> seconds_in(const json::Value& line, const char* key) {
  const json::Value* value = json::find(line, key);
  if (value == nullptr) return json::missing(key);
  return json::to_double(*value, key, 1e6);
}

Result<StartTimes> times_in(const json::Value& line) {
  StartTimes times;
  BATON_TRY(times.process, seconds_in(line, "process"));
  BATON_TRY(times.files, seconds_in(line, "files"));
  BATON_TRY(times.device, seconds_in(line, "device_s"));
  BATON_TRY(times.weights, seconds_in(line, "weights"));
  BATON_TRY(times.engine, seconds_in(line, "engine"));
  BATON_TRY(times.first_token, seconds_in(line, "first_token"));
  return times;
}

/// One start; what it says of itself goes into the report.
Result<StartTimes> start_once(const std::vector<std::string>& program, StartupReport& report) {
  std::vector<std::string> words = program;
  words.insert(words.end(), {"--started-at-ns", std::to_string(steady_ns())});
  BATON_TRY(const std::string output, output_of_process(words));
  BATON_TRY(const json::Value line, json::parse(output, "the output of a started process"));
  const auto text_in = [&](const char* key) {
    const json::Value* value = json::find(line, key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  };
  report.model = text_in("model");
  report.device = text_in("device");
  report.features = text_in("features");
  report.weight_dtype = text_in("weight_dtype");
  return times_in(line);
}

/// The words of the command line that started this process.
Result<std::vector<std::string>> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) return fail(ErrorCode::io, "/proc/self/cmdline cannot be read");
  words.front() = "/proc/self/exe";
  return words;
}

}  // namespace

Result<json::Value> measure_start(const StartupBenchOptions& options) {
  const std::int64_t begun = steady_ns();
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  DatasetOptions drawn;
  drawn.num_prompts = 1;
  drawn.random_input_len = options.input_len;
  drawn.random_output_len = 1;
  BATON_TRY(const Workload workload,
            make_workload(drawn, {.n_vocab = model.spec.n_vocab, .max_model_len = model.spec.max_position}));
  const std::int64_t found = steady_ns();
  BATON_TRY(const TimedEngine timed, load_timed_engine(model.files, model.options));
  const EngineInfo info = timed.engine->info();
  BATON_TRY(const OfflineResult run,
            run_offline(*timed.engine, workload,
                        {.arm = "relay", .salt = {}, .time_limit_s = 0, .title = {}, .shows_progress = false}));
  return json::Value{{"model", model.files.name},
                     {"device", info.backend.device},
                     {"features", info.backend.features},
                     {"weight_dtype", to_string(info.weight_dtype)},
                     {"process", static_cast<double>(begun - options.started_at_ns) / 1e9},
                     {"files", static_cast<double>(found - begun) / 1e9},
                     {"device_s", timed.times.device_s},
                     {"weights", timed.times.weights_s},
                     {"engine", timed.times.engine_s},
                     {"first_token", run.seconds}};
}

Result<StartupReport> run_startup_bench(const StartupBenchOptions& options, const std::vector<std::string>& program) {
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  StartupReport report;
  Progress progress("startup:", "starts", std::int64_t{options.n_iters_cold} + options.n_iters_warmup + options.n_iters_warm);
  std::int64_t n_done = 0;
  for (std::int32_t i = 0; i < options.n_iters_cold; ++i) {
    const PageCacheShare left = drop_page_cache(model.files.folder);
    if (left.cached_bytes >= report.left.cached_bytes) report.left = left;
    BATON_TRY(const StartTimes times, start_once(program, report));
    report.cold.push_back(times);
    progress.update(++n_done);
  }
  for (std::int32_t i = 0; i < options.n_iters_warmup + options.n_iters_warm; ++i) {
    BATON_TRY(const StartTimes times, start_once(program, report));
    if (i >= options.n_iters_warmup) report.warm.push_back(times);
    progress.update(++n_done);
  }
  return report;
}

int startup_bench_main(const StartupBenchOptions& options, const std::string& command) {
  constexpr const char* kProgram = "baton bench startup";
  if (options.started_at_ns > 0) {
    use_log_level(options.model);
    const auto measured = measure_start(options);
    if (!measured) return report_failure(kProgram, measured.error());
    print_output("{}\n", json::dump(*measured));
    return 0;
  }
  const auto program = own_command();
  if (!program) return report_failure(kProgram, program.error());
  return run_benchmark(
      kProgram, options, command, [&](const StartupBenchOptions& asked) { return run_startup_bench(asked, *program); },
      startup_text, startup_json);
}

}  // namespace baton
