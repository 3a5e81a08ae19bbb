/// Options to loads, loads to reports and files.
#include "bench/serve/serve_bench.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/http/server_counters.h"
#include "bench/report/machine_report.h"
#include "bench/serve/serve_load.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/version.h"
#include "core/split_mix.h"
#include "io/file.h"
#include "io/json.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kChatBackend = "openai-chat";

/// The options after the checks that need no server.
struct CheckedOptions {
  ServiceLevels levels;
  json::Value extra = json::Value::object();
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string endpoint;
};

tl::unexpected<Error> wrong_option(std::string message) { return fail(ErrorCode::invalid_request, std::move(message)); }

Result<ServiceLevels> parse_levels(const std::vector<std::string>& texts) {
  ServiceLevels levels;
  for (const std::string& text : texts) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string name = text.substr(0, colon);
    std::optional<double>* const level = name == "ttft"   ? &levels.ttft_ms
                                         : name == "tpot" ? &levels.tpot_ms
                                         : name == "e2el" ? &levels.e2el_ms
                                                          : nullptr;
    double ms = 0;
    const char* const last = text.data() + text.size();
    if (level == nullptr || colon == text.size() || std::from_chars(text.data() + colon + 1, last, ms).ptr != last ||
        !(ms >= 0))
      return wrong_option(fmt::format("--goodput must be ttft:MS, tpot:MS or e2el:MS, not '{}'", text));
    *level = ms;
  }
  return levels;
}

Result<CheckedOptions> check_serve_options(const ServeBenchOptions& options) {
  CheckedOptions checked;
  BATON_TRY(checked.levels, parse_levels(options.goodput));
  if (!options.extra_body.empty()) {
    BATON_TRY(checked.extra, json::parse(options.extra_body, "--extra-body"));
    if (!checked.extra.is_object()) return wrong_option("--extra-body must be a JSON object");
  }
  for (const std::string& text : options.metadata) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return wrong_option(fmt::format("--metadata must be KEY=VALUE, not '{}'", text));
    checked.metadata.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  const bool is_chat = options.backend == kChatBackend;
  checked.endpoint = !options.endpoint.empty() ? options.endpoint : is_chat ? "/v1/chat/completions" : "/v1/completions";
  if (checked.endpoint.ends_with("chat/completions") != is_chat)
    return wrong_option(fmt::format("--backend {} does not go with --endpoint {}", options.backend, checked.endpoint));
  for (const double rate : options.rates) {
    ScheduleOptions schedule = options.schedule;
    schedule.rate = rate;
    BATON_TRY_VOID(check_schedule(schedule));
  }
  for (const double percent : options.report.percents)
    if (!(percent >= 0 && percent <= 100))
      return wrong_option(fmt::format("--metric-percentiles must be from 0 to 100, not {:g}", percent));
  if (options.append_result && options.result_filename.empty())
    return wrong_option("--append-result needs --result-filename: default file names are new each time");
  const bool has_file = options.save_result || options.append_result;
  if (!has_file && !(options.result_dir.empty() && options.result_filename.empty()))
    return wrong_option("--result-dir and --result-filename need --save-result or --append-result");
  if (!has_file && options.save_detailed && options.json_file.empty())
    return wrong_option("--save-detailed needs --save-result, --append-result or --json");
  return checked;
}

/// What every default name of a file begins with.
std::string default_file_begin(const ServeBenchOptions& options) {
  return options.label.empty() ? options.backend : options.label;
}

/// The bytes that a result is appended to.
Result<std::string> result_before(const fs::path& file, bool appends) {
  std::error_code error;
  return appends && fs::exists(file, error) ? read_file(file) : Result<std::string>();
}

/// Whether the files of --save-result or --append-result can be written, before loads whose results would be lost. Makes their
/// folder. Errors name the flag.
Result<void> check_result_files(const ServeBenchOptions& options) {
  if (!options.save_result && !options.append_result) return {};
  const auto named = [&](const Error& error) {
    return Error{error.code, fmt::format("{}: {}", options.append_result ? "--append-result" : "--save-result", error.message)};
  };
  const fs::path file = fs::path(options.result_dir) /
                        (options.result_filename.empty() ? default_file_begin(options) + ".json" : options.result_filename);
  std::error_code error;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), error);
  if (error)
    return tl::unexpected(
        named({ErrorCode::io, fmt::format("cannot make the folder {}: {}", file.parent_path().string(), error.message())}));
  BATON_TRY_VOID(check_can_write(file).map_error(named));
  BATON_TRY_VOID(result_before(file, options.append_result).map_error(named));
  return {};
}

/// What all loads of a run have in common.
struct Bench {
  const ServeBenchOptions& options;
  CheckedOptions checked;
  ServeTarget target;
  Workload workload;
  ServeReportOptions report;

  bool follows_trace() const { return workload.has_arrivals && !options.is_rate_given && options.schedule.ramp_up.empty(); }
  /// Shuffled tokens answer nothing, so they are for answers of a fixed length.
  Workload workload_of(std::size_t load) const {
    return options.ignore_eos ? workload_of_load(workload, options.dataset.seed, load) : workload;
  }
  ServeLoad load_of(const Workload& requests) const {
    const bool has_turns =
        std::ranges::any_of(requests.requests, [](const auto& request) { return request.follows.has_value(); });
    ServeLoad load;
    load.format = {.address = target.address,
                   .endpoint = checked.endpoint,
                   .is_chat = options.backend == kChatBackend,
                   .model = target.served_name,
                   .headers = target.headers,
                   .ignore_eos = options.ignore_eos,
                   .temperature = options.temperature,
                   .extra = checked.extra,
                   .wants_ids = has_turns && options.backend != kChatBackend,
                   .tokenizer = target.tokenizer ? &*target.tokenizer : nullptr};
    load.workload = &requests;
    load.max_concurrency = options.max_concurrency;
    load.time_limit_s = options.time_limit_s;
    load.timeout_s = options.timeout_s;
    return load;
  }
};

Result<Bench> prepare_bench(const ServeBenchOptions& options, CheckedOptions checked) {
  BATON_TRY(ServeTarget target, find_serve_target(options.target));
  if (options.backend == kChatBackend && !target.tokenizer)
    return wrong_option("--backend openai-chat needs --tokenizer, which turns prompts into text");
  const DatasetContext context{target.n_vocab, target.tokenizer ? &*target.tokenizer : nullptr, target.max_model_len};
  BATON_TRY(Workload workload, make_workload(options.dataset, context));
  Bench bench{options, std::move(checked), std::move(target), std::move(workload), options.report};
  bench.report.levels = bench.checked.levels;
  return bench;
}

Result<ServeLoadResult> run_with_progress(const ServeLoad& load, const std::string& title) {
  Progress progress(title, "requests", static_cast<std::int64_t>(load.workload->requests.size()));
  auto result = run_serve_load(load, [&](std::int64_t n_ended) { progress.update(n_ended); });
  progress.finish();
  return result;
}

/// Warm-up requests share the workload's prefixes, not its own parts.
Result<void> warm_up(const Bench& bench) {
  Workload warm = bench.workload_of(bench.options.rates.size());
  std::erase_if(warm.requests, [](const WorkloadRequest& request) { return request.follows.has_value(); });
  warm.requests.resize(std::min(warm.requests.size(), static_cast<std::size_t>(bench.options.num_warmups)));
  ServeLoad load = bench.load_of(warm);
  load.time_limit_s = 0;
  load.arrivals_s.assign(warm.requests.size(), 0);
  BATON_TRY(const ServeLoadResult result, run_with_progress(load, "warming up"));
  for (const ServedRequest& request : result.requests)
    if (!request.error.empty()) return fail(ErrorCode::unavailable, "a warm-up request failed: " + request.error);
  return {};
}

struct LoadReport {
  ServeSummary summary;
  json::Value json;
};

/// The keys that vLLM's benchmark writes before its results.
json::Value json_head(const Bench& bench, const ServeSummary& summary) {
  const ServeBenchOptions& options = bench.options;
  const auto or_null = [](const std::string& text) { return text.empty() ? json::Value(nullptr) : json::Value(text); };
  json::Value object;
  object["date"] = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  object["endpoint_type"] = options.backend;
  object["backend"] = options.backend;
  object["label"] = or_null(options.label);
  object["model_id"] = bench.target.model;
  object["tokenizer_id"] = or_null(bench.target.tokenizer_name);
  object["num_prompts"] = summary.n_requests;
  const double rate = summary.schedule.rate;
  object["request_rate"] = summary.is_trace ? json::Value("trace") : std::isinf(rate) ? json::Value("inf") : json::Value(rate);
  object["burstiness"] =
      std::isinf(options.schedule.burstiness) ? json::Value("inf") : json::Value(options.schedule.burstiness);
  object["max_concurrency"] = options.max_concurrency > 0 ? json::Value(options.max_concurrency) : json::Value(nullptr);
  if (!options.schedule.ramp_up.empty()) {
    object["ramp_up_strategy"] = options.schedule.ramp_up;
    object["ramp_up_start_rps"] = options.schedule.ramp_up_start;
    object["ramp_up_end_rps"] = options.schedule.ramp_up_end;
  }
  return object;
}

Result<LoadReport> run_load(const Bench& bench, std::size_t index, const std::string& command) {
  const ServeBenchOptions& options = bench.options;
  const Workload workload = bench.workload_of(index);
  ScheduleOptions schedule = options.schedule;
  schedule.rate = options.rates[index];
  const std::uint64_t seed = options.dataset.seed + index;
  ServeLoad load = bench.load_of(workload);
  if (bench.follows_trace())
    for (const WorkloadRequest& request : workload.requests) load.arrivals_s.push_back(request.arrival_s);
  else
    load.arrivals_s = make_schedule(schedule, seed, workload.requests.size());
  const auto counters = [&] {
    return read_server_counters(load.format.address, load.format.headers).value_or(ServerCounters{});
  };
  const ServerCounters before = counters();
  BATON_TRY(const ServeLoadResult result, run_with_progress(load, "serving"));
  LoadReport report;
  report.summary = summarize(result, counters().since(before), bench.report);
  report.summary.schedule = schedule;
  report.summary.is_trace = bench.follows_trace();
  report.summary.max_concurrency = options.max_concurrency;
  report.json = json_head(bench, report.summary);
  add_results(report.json, report.summary, bench.report);
  if (options.save_detailed) add_details(report.json, result);
  report.json["dataset"] = workload.name;
  report.json["seed"] = seed;
  report.json["time_limit_s"] = options.time_limit_s > 0 ? json::Value(options.time_limit_s) : json::Value(nullptr);
  report.json["command"] = command;
  report.json["version"] = version_line();
  report.json["device"] = nullptr;
  for (const auto& [key, value] : bench.checked.metadata) report.json[key] = value;
  return report;
}

/// A number as Python prints a float: "4.0", "0.5", "inf".
std::string python_float(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

/// The name that vLLM's benchmark gives the file of a load.
std::string default_file_name(const Bench& bench, const LoadReport& report) {
  const ServeBenchOptions& options = bench.options;
  const ScheduleOptions& schedule = options.schedule;
  const std::string concurrency = options.max_concurrency > 0 ? fmt::format("-concurrency{}", options.max_concurrency) : "";
  const std::string rate = report.summary.is_trace ? "trace"
                           : schedule.ramp_up.empty()
                               ? python_float(report.summary.schedule.rate) + "qps"
                               : fmt::format("ramp-up-{}-{}qps-{}qps", schedule.ramp_up, python_float(schedule.ramp_up_start),
                                             python_float(schedule.ramp_up_end));
  return fmt::format("{}-{}{}-{}-{}.json", default_file_begin(options), rate, concurrency,
                     fs::path(bench.target.model).filename().string(), report.json["date"].get<std::string>());
}

/// The object of one load, or {"runs": [...]} of several.
json::Value json_of_all(const std::vector<LoadReport>& reports, const std::string& command) {
  if (reports.size() == 1) return reports.front().json;
  json::Value all{{"command", command}, {"version", version_line()}, {"runs", json::Value::array()}};
  for (const LoadReport& report : reports) all["runs"].push_back(report.json);
  return all;
}

Result<void> save_result(const fs::path& file, const json::Value& result, bool appends) {
  BATON_TRY(const std::string before, result_before(file, appends));
  return write_file(file, before + json::dump(result) + "\n");
}

Result<void> write_files(const Bench& bench, const std::vector<LoadReport>& reports, const std::string& command) {
  const ServeBenchOptions& options = bench.options;
  if (!options.json_file.empty())
    BATON_TRY_VOID(write_file(options.json_file, json::dump_pretty(json_of_all(reports, command))));
  if (!options.save_result && !options.append_result) return {};
  const fs::path folder = options.result_dir;
  if (!options.result_filename.empty())
    return save_result(folder / options.result_filename, json_of_all(reports, command), options.append_result);
  for (const LoadReport& report : reports)
    BATON_TRY_VOID(save_result(folder / default_file_name(bench, report), report.json, false));
  return {};
}

Result<std::vector<LoadReport>> run_loads(const Bench& bench, const std::string& command) {
  const ServeBenchOptions& options = bench.options;
  print_output("{}\n{}\nserver: http://{}{}, model {}\nrequests: {}, {} of them\n", command, version_line(),
               bench.target.address.authority(), bench.target.address.path, bench.target.served_name, bench.workload.name,
               bench.workload.requests.size());
  if (options.rates.size() > 1)
    write_output(options.ignore_eos
                     ? "Each rate has own parts of its own; what requests share stays, and is cached from the first rate on.\n"
                     : "All rates have the same requests: a prefix cache knows them from the first rate on.\n");
  if (options.num_warmups > 0) BATON_TRY_VOID(warm_up(bench));
  std::vector<LoadReport> reports;
  for (std::size_t i = 0; i < options.rates.size() && !was_interrupted(); ++i) {
    BATON_TRY(LoadReport report, run_load(bench, i, command));
    print_output("\n{}", report_text(report.summary, bench.report));
    reports.push_back(std::move(report));
  }
  if (reports.size() > 1) {
    std::vector<ServeSummary> summaries;
    for (const LoadReport& report : reports) summaries.push_back(report.summary);
    print_output("\n{}", sweep_table(summaries, bench.report));
  }
  return reports;
}

}  // namespace

Workload workload_of_load(const Workload& workload, std::uint64_t seed, std::size_t load) {
  Workload made = workload;
  if (load == 0) return made;
  const std::uint64_t key = split_mix(mix_bits(seed), load);
  for (std::size_t i = 0; i < made.requests.size(); ++i) {
    WorkloadRequest& request = made.requests[i];
    const auto own = std::span(request.prompt).subspan(std::min<std::size_t>(request.prompt.size(), request.shared_len));
    for (std::size_t j = own.size(); j > 1; --j) std::swap(own[j - 1], own[split_mix(key + i, j) % j]);
  }
  return made;
}

int serve_bench_main(const ServeBenchOptions& options, const std::string& command) {
  const auto failed = [](const Error& error, int code) {
    print_error("baton bench serve", error);
    return code;
  };
  auto checked = check_serve_options(options);
  if (!checked) return failed(checked.error(), 2);
  if (const auto can_write = check_json_file(options.json_file); !can_write) return failed(can_write.error(), 1);
  if (const auto can_write = check_result_files(options); !can_write) return failed(can_write.error(), 1);
  watch_interrupts();
  auto bench = prepare_bench(options, std::move(*checked));
  if (!bench) return failed(bench.error(), bench.error().code == ErrorCode::invalid_request ? 2 : 1);
  const auto reports = run_loads(*bench, command);
  if (!reports) return failed(reports.error(), 1);
  if (auto written = write_files(*bench, *reports, command); !written) return failed(written.error(), 1);
  const bool has_answers =
      std::ranges::any_of(*reports, [](const LoadReport& report) { return report.summary.totals.completed > 0; });
  return has_answers ? 0 : 1;
}

}  // namespace baton
