/// `baton bench decode`: tokens a second of many requests behind one shared prompt, relay and paged side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/options.h"
#include "core/result.h"
#include "engine/engine.h"

namespace baton {

struct DecodeBenchOptions {
  ModelOptions model;          ///< a folder, or bench/shapes/NAME with random weights
  std::string shape;           ///< NAME of bench/shapes; takes the place of the model
  std::int32_t shared = 2048;  ///< tokens of the shared prompt
  std::int32_t own = 0;        ///< prompt tokens of each request behind it
  std::int32_t n_new = 32;     ///< tokens each generates
  std::vector<std::int32_t> requests{1, 8, 32};
  std::int32_t n_runs = 3;
  std::vector<std::string> arms{"relay", "paged"};
  std::string json_file;
};

/// What one arm did with one number of requests.
struct DecodeRun {
  std::string arm;
  std::int32_t n_requests = 0;
  std::vector<double> tokens_per_s;     ///< decode only: from the step after the last first token, one a run
  double prefill_tokens_per_s = 0;      ///< of the shared prompt, once
  std::int64_t kv_bytes_requested = 0;  ///< of the last run's decode steps
  std::int64_t kv_bytes_saved = 0;

  double median() const;
  double spread() const;  ///< (largest - smallest) / median
};

/// Runs every arm at every number of requests, the arms interleaved.
Result<std::vector<DecodeRun>> run_decode_bench(const DecodeBenchOptions& options);

/// Adds the flags and registers nothing else.
void add_decode_bench_options(CLI::App& app, DecodeBenchOptions& options);

/// Runs and prints: a table, the command and the machine on standard output. Exit code.
int decode_bench_main(const DecodeBenchOptions& options, const std::string& command);

}  // namespace baton
