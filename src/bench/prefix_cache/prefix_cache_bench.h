/// `baton bench prefix-cache`: how many tokens requests compute again that requests before them have computed.
///
/// A cache of keys and values computes again less than a block of what a prompt shares. With recurrent layers a prompt can continue
/// only where their state was kept. One engine runs cases that share prompts as users do, and the table has what each request
/// computed beside what keys and values alone would need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/prefix_cache/prefix_cases.h"
#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/json.h"

namespace CLI {
class App;
}

namespace baton {

struct PrefixCacheBenchOptions {
  ModelFlags model;
  std::string shape;  ///< NAME of bench/shapes, or a folder with a config.json; replaces the model
  PrefixCaseChoice cases;
  std::string json_file;
};

/// A request that computes at most so many tokens more than a cache of keys and values alone keeps the goal.
inline constexpr std::int32_t kPrefixCacheGoal = 64;

struct CaseRequest {
  std::int32_t prompt_len = 0;
  std::int32_t shared_len = 0;   ///< tokens of the prompt that earlier requests, or the registration, computed
  std::int32_t again_in_kv = 0;  ///< of these, computed again by a cache of keys and values in whole blocks
  std::int32_t again = 0;        ///< of these, computed again
  double first_token_ms = 0;     ///< from submit to the first token

  std::int32_t more() const { return again - again_in_kv; }
  double hit_rate() const;  ///< share of the prompt's tokens that was not computed
};

struct PrefixCaseResult {
  PrefixCase of;
  std::vector<CaseRequest> requests = {};
  /// Rows of steps that the requests do not tell of: 0, unless sequences were preempted.
  std::int64_t n_rows_untold = 0;

  std::int32_t most_more() const;  ///< of the requests that are judged; 0 without any
  bool keeps_goal() const { return most_more() <= kPrefixCacheGoal; }
};

struct FailedPrefixCase {
  PrefixCase of;
  std::string error;
};

struct PrefixCacheReport {
  std::string model;
  EngineInfo engine;
  std::vector<PrefixCaseResult> cases;
  std::vector<FailedPrefixCase> failed;  ///< their requests are not in `cases`
  std::vector<PrefixCase> left_out;      ///< longer than the model's contexts
};

/// Loads the model and runs every case over an empty cache; what a case fails of does not end the others. Errors: those of loading
/// and of the first steps; invalid_request: no case fits the model.
Result<PrefixCacheReport> run_prefix_cache_bench(const PrefixCacheBenchOptions& options);

/// Command, machine, a row for each request, and which cases keep the goal.
std::string prefix_cache_text(const PrefixCacheReport& report, const PrefixCacheBenchOptions& options,
                              const std::string& command);
json::Value prefix_cache_json(const PrefixCacheReport& report, const PrefixCacheBenchOptions& options,
                              const std::string& command);

/// Adds the flags only.
void add_prefix_cache_bench_options(CLI::App& app, PrefixCacheBenchOptions& options);

/// Runs the benchmark and prints the report. Returns the exit code: 1 too if a case failed.
int prefix_cache_bench_main(const PrefixCacheBenchOptions& options, const std::string& command);

}  // namespace baton
