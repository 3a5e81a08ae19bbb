/// `baton bench decode`: tokens per second of many requests with one shared prompt, relay and paged side by side.
///
/// All arms use one engine, so they have the same weights, cache and prompts. Their runs are interleaved. Prompts are
/// prefilled before a run. Its clock starts when the last request has its first token; all requests get it in the same
/// step.
///
/// With drafts, whose acceptance may be simulated, requests get several tokens in a step and do not end together: the clock then
/// stops before the first one ends.
///
/// A model with recurrent layers finds its prompts up to a snapshot and not up to their end: the full blocks of the shared prompt in
/// relay and paged. Each run computes the rest, in the unshared arm usually all. Its clock starts when the last request has its
/// first token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"

namespace baton {

struct DecodeBenchOptions {
  ModelFlags model;   ///< a folder, or bench/shapes/NAME with random weights
  std::string shape;  ///< NAME of bench/shapes, or a folder with a config.json; replaces the model
  std::vector<std::int32_t> shared{
      2048};                ///< tokens of the shared prompt: one prompt after another, each with tokens of its own
  std::int32_t own = 0;     ///< prompt tokens of each request after it; at least one is sent
  std::int32_t n_new = 32;  ///< tokens that each request generates
  std::vector<std::int32_t> requests{1, 8, 32};
  std::int32_t n_runs = 3;
  /// relay: the shared prompt is read once in each step; paged: each request reads it; unshared: each request has its
  /// own copy.
  std::vector<std::string> arms{"relay", "paged"};
  /// With drafts of the model's own layer: verification accepts a draft with this probability, because random weights accept none.
  std::optional<double> draft_acceptance = {};
  std::vector<std::int32_t> drafts = {};  ///< numbers of drafts that are run beside each other; 0: without; empty: the model's
  bool count_experts = false;             ///< also counts the experts of a step; times are then a little longer
  std::string json_file;
};

/// The results of one arm with one number of requests behind one shared prompt.
struct DecodeRun {
  std::string arm;
  std::int32_t n_shared = 0;        ///< tokens of that prompt
  double prefill_tokens_per_s = 0;  ///< with which it was computed, once for all arms; 0 without one
  std::int32_t n_requests = 0;
  std::int32_t n_drafts = 0;            ///< of each request in a step
  std::vector<double> tokens_per_s;     ///< in the steps after the first token, one value for each run
  double step_ms = 0;                   ///< mean over the steps of the last run
  double tokens_per_step = 0;           ///< of each request
  double host_ms = 0;                   ///< host time in it; a device works meanwhile, a CPU does not
  std::int64_t kv_bytes_requested = 0;  ///< in the last run's decode steps
  std::int64_t kv_bytes_saved = 0;
  double experts_per_layer = 0;  ///< chosen by some row of the last step, mean of the layers with experts; 0: not counted

  double median() const;
  double spread() const;  ///< (largest - smallest) / median
};

struct DecodeBenchReport {
  std::string model;
  EngineInfo engine;
  std::int32_t n_experts = 0;        ///< of a layer that has most of them, if they are counted
  double prefill_tokens_per_s = 0;   ///< of the last shared prompt
  double unshared_tokens_per_s = 0;  ///< of its copies in the unshared arm; 0 without it
  std::vector<DecodeRun> runs;       ///< all arms for each shared prompt and number of requests
};

/// Loads the model and runs every arm with every shared prompt and number of requests; prints one line on standard error for each run.
/// Errors: those of loading; invalid_request: experts that cannot be counted, or answers that end before the prompts of a run are
/// computed; out_of_memory: the cache cannot hold the prompts of an arm.
Result<DecodeBenchReport> run_decode_bench(const DecodeBenchOptions& options);

/// Adds the flags only.
void add_decode_bench_options(CLI::App& app, DecodeBenchOptions& options);

/// Runs the benchmark and prints the command, the machine and a table on standard output. Returns the exit code.
int decode_bench_main(const DecodeBenchOptions& options, const std::string& command);

}  // namespace baton
