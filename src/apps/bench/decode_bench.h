/// `baton bench decode`: tokens a second of many requests behind one shared prompt, relay and paged side by side.
///
/// One engine serves all arms, so they have the same weights, cache and prompts, and their runs are interleaved.
/// Prompts are prefilled before a run; its clock starts when the last request has its first token, which all get in
/// one step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/options.h"
#include "core/result.h"
#include "engine/engine.h"

namespace baton {

struct DecodeBenchOptions {
  ModelFlags model;            ///< a folder, or bench/shapes/NAME with random weights
  std::string shape;           ///< NAME of bench/shapes, or a folder with a config.json; takes the place of the model
  std::int32_t shared = 2048;  ///< tokens of the shared prompt
  std::int32_t own = 0;        ///< prompt tokens of each request behind it; one at least is sent
  std::int32_t n_new = 32;     ///< tokens each generates
  std::vector<std::int32_t> requests{1, 8, 32};
  std::int32_t n_runs = 3;
  /// relay: the shared prompt is read once a step; paged: by each request; unshared: each request has a copy of its
  /// own.
  std::vector<std::string> arms{"relay", "paged"};
  std::string json_file;
};

/// What one arm did with one number of requests.
struct DecodeRun {
  std::string arm;
  std::int32_t n_requests = 0;
  std::vector<double> tokens_per_s;     ///< of the steps after the first token, one a run
  double step_ms = 0;                   ///< of the last run, mean of its steps
  double host_ms = 0;                   ///< of that: not waiting for the model; a device works meanwhile, a CPU does not
  std::int64_t kv_bytes_requested = 0;  ///< of the last run's decode steps
  std::int64_t kv_bytes_saved = 0;

  double median() const;
  double spread() const;  ///< (largest - smallest) / median
};

struct DecodeBenchReport {
  std::string model;
  EngineInfo engine;
  double prefill_tokens_per_s = 0;   ///< of the shared prompt, computed once; 0 if there is none
  double unshared_tokens_per_s = 0;  ///< of the copies of the unshared arm; 0 without it
  std::vector<DecodeRun> runs;       ///< for each number of requests each arm
};

/// Loads the model and runs every arm at every number of requests, with a line on standard error for each run. Errors:
/// those of loading; out_of_memory if the cache cannot hold the prompts of an arm.
Result<DecodeBenchReport> run_decode_bench(const DecodeBenchOptions& options);

/// Adds the flags and registers nothing else.
void add_decode_bench_options(CLI::App& app, DecodeBenchOptions& options);

/// Runs and prints: the command, the machine and a table on standard output. Exit code.
int decode_bench_main(const DecodeBenchOptions& options, const std::string& command);

}  // namespace baton
