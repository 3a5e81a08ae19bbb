/// `baton bench grammar`: tokens per second of answers that keep to a grammar, beside free ones.
///
/// All arms use one engine and the same prompts; their runs are interleaved. The clock runs from the step in which the
/// last request gets its first token until the first request ends, so that all of them decode in every timed step.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"

namespace baton {

/// free: no grammar; grammar: JSON of a schema; first-use: the same with a schema never used before; canonical: the
/// same as grammar, and biases make random weights spell the schema's text in the tokens that the tokenizer makes of
/// it, as a trained model does; drafts: the same as canonical, and text that must follow is drafted.
inline constexpr auto kGrammarArms = std::to_array<std::string_view>({"free", "grammar", "first-use", "canonical", "drafts"});

struct GrammarBenchOptions {
  ModelFlags model;
  std::string shape;      ///< see find_bench_model
  std::string tokenizer;  ///< folder or file; empty: the model's
  std::int32_t requests = 32;
  std::int32_t own = 16;     ///< prompt tokens of each request
  std::int32_t n_new = 128;  ///< tokens that each request generates
  std::int32_t n_runs = 5;
  std::vector<std::string> arms{kGrammarArms.begin(), kGrammarArms.end()};
  std::string json_file;
};

/// The runs of one arm. The counts are of the timed steps of the last run.
struct GrammarRun {
  std::string arm;
  std::vector<double> tokens_per_s = {};
  std::int64_t n_tokens = 0;
  std::int64_t n_steps = 0;
  std::int64_t n_masks = 0;
  double mask_ms = 0;       ///< spent on masks, all steps
  double most_mask_ms = 0;  ///< of one step, as the upper bound of its bucket in baton:grammar_mask_seconds
  std::int64_t n_drafts = 0;
  std::int64_t n_accepted = 0;

  double median() const;
  double spread() const;  ///< (largest - smallest) / median
};

struct GrammarBenchReport {
  std::string model;
  EngineInfo engine;
  double compile_ms = 0;  ///< of the schema
  std::vector<GrammarRun> runs;
};

/// Errors: those of loading; invalid_request if there is no tokenizer, or an answer ended before its length.
Result<GrammarBenchReport> run_grammar_bench(const GrammarBenchOptions& options);

/// Adds the flags only.
void add_grammar_bench_options(CLI::App& app, GrammarBenchOptions& options);

/// Runs the benchmark and prints the command, the machine and a table on standard output. Returns the exit code.
int grammar_bench_main(const GrammarBenchOptions& options, const std::string& command);

}  // namespace baton
