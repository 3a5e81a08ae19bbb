/// Makes the requests, runs one load, reads the server's counters and thread times, and prints tables.
#include "bench/stream/stream_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/http/server_counters.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "bench/report/statistics.h"
#include "bench/stream/stream_load.h"
#include "bench/stream/thread_times.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/version.h"
#include "io/file.h"
#include "io/json.h"

namespace baton {
namespace {

constexpr std::string_view kEngineThread = "engine";  ///< first part of its threads' names
constexpr int kBuiltInPrompts = 1024;

/// The request body for a line of a prompts file.
Result<json::Value> body_of_line(const json::Value& line, const std::string& where, bool is_chat) {
  const char* const field = is_chat ? "messages" : "prompt";
  if (!line.is_object() || !line.contains(field))
    return fail(ErrorCode::invalid_data,
                fmt::format("{} has no '{}', which {} need", where, field, is_chat ? "chats" : "completions"));
  json::Value body;
  body[field] = line[field];
  if (line.contains("prefix")) body["prefix"] = line["prefix"];
  return body;
}

Result<std::vector<json::Value>> read_bodies(const StreamBenchOptions& options) {
  std::vector<json::Value> bodies;
  if (options.prompts_file.empty()) {
    for (int i = 0; i < kBuiltInPrompts; ++i) {
      const std::string text = fmt::format("Question {}: what do you know about the number {}?", i, 7919 * i);
      json::Value body;
      if (options.is_chat)
        body["messages"] = json::Value::array({{{"role", "user"}, {"content", text}}});
      else
        body["prompt"] = text;
      bodies.push_back(std::move(body));
    }
    return bodies;
  }
  BATON_TRY(const std::string text, read_file(options.prompts_file));
  int n_lines = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string where = fmt::format("{}, line {}", options.prompts_file, ++n_lines);
    if (end > begin) {
      BATON_TRY(const json::Value line, json::parse(std::string_view(text).substr(begin, end - begin), where));
      BATON_TRY(json::Value body, body_of_line(line, where, options.is_chat));
      bodies.push_back(std::move(body));
    }
    begin = end + 1;
  }
  if (bodies.empty()) return fail(ErrorCode::invalid_data, fmt::format("{} holds no prompts", options.prompts_file));
  return bodies;
}

Result<std::vector<std::string>> make_bodies(const StreamBenchOptions& options) {
  BATON_TRY(std::vector<json::Value> bodies, read_bodies(options));
  std::vector<std::string> texts;
  for (json::Value& body : bodies) {
    body["stream"] = true;
    body["stream_options"]["include_usage"] = true;
    body["temperature"] = 0;
    body["max_tokens"] = options.max_tokens;
    body["min_tokens"] = options.max_tokens;  // all answers have the same length
    if (!options.text_only) body["return_token_ids"] = true;
    texts.push_back(json::dump(body));
  }
  return texts;
}

double own_processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

struct Report {
  StreamLoadResult load;
  ServerCounters counters;  // the increase during the load
  double client_seconds = 0;
  std::map<std::string, ThreadTime> threads;  // the increase during the load

  double per_token_us(double seconds) const {
    return load.n_tokens == 0 ? 0 : 1e6 * seconds / static_cast<double>(load.n_tokens);
  }
  /// All threads of the server except the engine's and those of its parallel loops.
  double server_seconds() const {
    double seconds = 0;
    for (const auto& [name, time] : threads) seconds += name.starts_with(kEngineThread) ? 0 : time.seconds;
    return seconds;
  }
};

Result<Report> measure(const StreamBenchOptions& options) {
  StreamLoad load;
  BATON_TRY(const ServerAddress address, parse_server_address(options.url));
  load.url = address.url() + (options.is_chat ? "/v1/chat/completions" : "/v1/completions");
  load.n_clients = options.n_clients;
  load.seconds = options.seconds;
  load.n_requests = options.n_requests;
  load.expected = {options.is_chat, !options.text_only};
  BATON_TRY(load.bodies, make_bodies(options));
  BATON_TRY(const ServerCounters before, read_server_counters(address, {}));
  std::map<std::string, ThreadTime> threads_before;
  if (options.server_pid != 0) {
    BATON_TRY(threads_before, thread_times(options.server_pid));
  }
  Report report;
  const double own_before = own_processor_seconds();
  Progress progress("streaming", "seconds", static_cast<std::int64_t>(options.seconds));
  BATON_TRY(report.load, run_stream_load(load, [&](double seconds) { progress.update(static_cast<std::int64_t>(seconds)); }));
  progress.finish();
  report.client_seconds = own_processor_seconds() - own_before;
  if (options.server_pid != 0) {
    BATON_TRY(const auto threads_after, thread_times(options.server_pid));
    report.threads = time_between(threads_before, threads_after);
  }
  BATON_TRY(const ServerCounters after, read_server_counters(address, {}));
  report.counters = after.since(before);
  return report;
}

void print_streams(const Report& report, const StreamBenchOptions& options) {
  const StreamLoadResult& load = report.load;
  MarkdownTable streams({"clients", "requests", "whole", "tokens", "tokens/s", "lost", "extra", "faults"});
  streams.add({std::to_string(options.n_clients), std::to_string(load.n_requests), std::to_string(load.n_whole),
               std::to_string(load.n_tokens), fmt::format("{:.0f}", static_cast<double>(load.n_tokens) / load.seconds),
               options.text_only ? "not counted" : std::to_string(load.n_lost),
               options.text_only ? "not counted" : std::to_string(load.n_extra), std::to_string(load.n_faults)});
  MarkdownTable times({"", "median", "p99", "most"});
  const auto row = [&](const char* name, std::vector<float> values) {
    if (!values.empty())
      times.add({name, fmt::format("{:.1f} ms", quantile_of(values, 0.5)), fmt::format("{:.1f} ms", quantile_of(values, 0.99)),
                 fmt::format("{:.1f} ms", quantile_of(values, 1))});
  };
  row("first token", load.first_token_ms);
  row("between chunks", load.gap_ms);
  print_output("{}\n{}", streams.text(), times.text());
  for (const std::string& fault : load.faults) print_output("fault: {}\n", fault);
}

void print_costs(const Report& report) {
  const ServerCounters& counters = report.counters;
  if (counters.steps > 0)
    print_output("\nengine: {:.0f} steps of {:.1f} tokens; between two tokens of an answer {:.2f} ms\n", counters.steps,
                 counters.tokens / counters.steps, 1e3 * counters.gap_sum_s / std::max(counters.n_gaps, 1.0));
  if (counters.n_io_waits() > 0)
    print_output("server's I/O thread: {:.0f} times at a lock; 99% waited at most {:g} ms, 99.9% at most {:g} ms\n",
                 counters.n_io_waits(), 1e3 * counters.io_wait_within_s(0.99), 1e3 * counters.io_wait_within_s(0.999));
  print_output("clients: {:.2f} s of a core, {:.1f} us a token\n", report.client_seconds,
               report.per_token_us(report.client_seconds));
  if (report.threads.empty()) return;
  MarkdownTable threads({"server thread", "threads", "processor time", "a token", "share of a core"});
  const auto row = [&](const std::string& name, const std::string& n_threads, double seconds) {
    threads.add({name, n_threads, fmt::format("{:.3f} s", seconds), fmt::format("{:.1f} us", report.per_token_us(seconds)),
                 fmt::format("{:.2f}%", 100 * seconds / report.load.seconds)});
  };
  for (const auto& [name, time] : report.threads) row(name, std::to_string(time.n_threads), time.seconds);
  row("all but engine", "", report.server_seconds());
  print_output("\n{}", threads.text());
}

json::Value to_json(const Report& report, const StreamBenchOptions& options, const std::string& command) {
  const StreamLoadResult& load = report.load;
  const auto quantiles = [](const std::vector<float>& values) {
    json::Value made;
    for (const auto& [name, share] : {std::pair{"median_ms", 0.5}, {"p99_ms", 0.99}, {"most_ms", 1.0}})
      made[name] = quantile_of(values, share);
    return made;
  };
  json::Value threads = json::Value::object();
  for (const auto& [name, time] : report.threads)
    threads[name] = {
        {"threads", time.n_threads}, {"seconds", time.seconds}, {"us_per_token", report.per_token_us(time.seconds)}};
  return {{"command", command},
          {"version", version_line()},
          {"clients", options.n_clients},
          {"seconds", load.seconds},
          {"requests", load.n_requests},
          {"whole", load.n_whole},
          {"tokens", load.n_tokens},
          {"frames", load.n_frames},
          {"lost", load.n_lost},
          {"extra", load.n_extra},
          {"faults", load.n_faults},
          {"fault_texts", load.faults},
          {"first_token", quantiles(load.first_token_ms)},
          {"between_chunks", quantiles(load.gap_ms)},
          {"engine",
           {{"steps", report.counters.steps},
            {"tokens", report.counters.tokens},
            {"mean_between_tokens_ms", 1e3 * report.counters.gap_sum_s / std::max(report.counters.n_gaps, 1.0)}}},
          {"io_lock_waits",
           {{"count", report.counters.n_io_waits()},
            {"p99_at_most_ms", 1e3 * report.counters.io_wait_within_s(0.99)},
            {"p999_at_most_ms", 1e3 * report.counters.io_wait_within_s(0.999)}}},
          {"client_us_per_token", report.per_token_us(report.client_seconds)},
          {"server_threads", threads},
          {"server_us_per_token", report.per_token_us(report.server_seconds())}};
}

}  // namespace

int stream_bench_main(const StreamBenchOptions& options, const std::string& command) {
  constexpr const char* kName = "baton bench stream";
  if (const auto can_write = check_json_file(options.json_file); !can_write) return report_failure(kName, can_write.error());
  auto report = measure(options);
  if (!report) return report_failure(kName, report.error());
  print_output("{}\n{}\n\n", command, version_line());
  print_streams(*report, options);
  print_costs(*report);
  if (!options.json_file.empty())
    if (auto written = write_file(options.json_file, json::dump_pretty(to_json(*report, options, command))); !written)
      return report_failure(kName, written.error());
  return report->load.n_faults == 0 ? 0 : 1;
}

}  // namespace baton
