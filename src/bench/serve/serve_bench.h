/// `baton bench serve`: a load of streamed requests on a running server with OpenAI's API, and what its clients see.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/dataset/dataset.h"
#include "bench/dataset/workload.h"
#include "bench/serve/request_schedule.h"
#include "bench/serve/serve_report.h"
#include "bench/serve/serve_target.h"

namespace CLI {
class App;
}

namespace baton {

inline constexpr std::array<std::string_view, 3> kServeBackends{"openai", "vllm", "openai-chat"};

/// The values of the flags (add_serve_bench_options). Names and defaults are those of `vllm bench serve`.
struct ServeBenchOptions {
  std::string backend = "openai";  ///< one of kServeBackends; vllm is openai
  ServeTargetOptions target;
  std::string endpoint;  ///< empty: /v1/completions, or /v1/chat/completions for openai-chat
  DatasetOptions dataset;

  std::vector<double> rates{std::numeric_limits<double>::infinity()};  ///< one load each, in turn
  bool is_rate_given = false;
  ScheduleOptions schedule;  ///< all but the rate
  std::int32_t max_concurrency = 0;
  std::int32_t num_warmups = 0;
  double time_limit_s = 0;
  double timeout_s = 6 * 3600;
  bool ignore_eos = true;
  double temperature = 0;
  std::string extra_body;  ///< a JSON object

  ServeReportOptions report;
  std::vector<std::string> goodput;  ///< NAME:MILLISECONDS
  std::string label;
  std::vector<std::string> metadata;  ///< KEY=VALUE
  bool save_result = false, save_detailed = false, append_result = false;
  std::string result_dir;
  std::string result_filename;
  std::string json_file;
};

void add_serve_bench_options(CLI::App& app, ServeBenchOptions& options);

/// The requests of load `load` of a sweep: those of `workload`, but from the second load on the tokens that no other
/// request shares are shuffled, so that a prefix cache does not know them from the load before.
Workload workload_of_load(const Workload& workload, std::uint64_t seed, std::size_t load);

/// Runs the loads and prints a report of each on standard output. Exit code: 0; 1 if there was no server, no request
/// was answered, or a file could not be written; 2 if the options are wrong.
int serve_bench_main(const ServeBenchOptions& options, const std::string& command);

}  // namespace baton
