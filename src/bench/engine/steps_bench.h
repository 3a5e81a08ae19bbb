/// `baton bench steps`: how long a step takes that decodes for so many requests and computes so many prompt tokens.
///
/// All requests share one prompt, which is in the cache. The decoding ones have own tokens after it. Before each step requests
/// are submitted whose own tokens, together as many as the column says, are all computed in that step; it samples their only
/// token. A time is that from the end of one step to the end of the next, as a stream of the server sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/json.h"

namespace CLI {
class App;
}

namespace baton {

struct StepsBenchOptions {
  ModelFlags model;            ///< a folder, or bench/shapes/NAME with random weights
  std::string shape;           ///< NAME of bench/shapes, or a folder with a config.json; replaces the model
  std::int32_t shared = 2048;  ///< tokens of the shared prompt; its full blocks count
  std::int32_t own = 160;      ///< prompt tokens of each decoding request after it
  std::vector<std::int32_t> requests{0, 32, 64, 128};
  std::vector<std::int32_t> prompt_tokens{0, 64, 128, 256, 512};
  std::int32_t n_prompts = 1;  ///< requests that have them
  std::int32_t n_steps = 12;   ///< that are timed for each number
  std::string json_file;
};

/// The steps of one size.
struct StepCost {
  std::int32_t n_decodes = 0;
  std::int32_t n_prompt_tokens = 0;
  std::vector<double> seconds;  ///< of each step
};

struct StepsBenchReport {
  std::string model;
  EngineInfo engine;
  std::vector<StepCost> costs;  ///< by decodes, then by prompt tokens; none for no rows
};

/// Loads the model and times all sizes; prints one line on standard error for each number of requests. Errors: those of loading;
/// invalid_request: a number that cannot be run; internal: steps had other rows than they should.
Result<StepsBenchReport> run_steps_bench(const StepsBenchOptions& options);

/// Command, machine, and a table in Markdown with a line for each number of requests.
std::string steps_text(const StepsBenchReport& report, const StepsBenchOptions& options, const std::string& command);
/// The same numbers. `baton simulate --step-costs` reads them.
json::Value steps_json(const StepsBenchReport& report, const StepsBenchOptions& options, const std::string& command);

/// Adds the flags only.
void add_steps_bench_options(CLI::App& app, StepsBenchOptions& options);

/// Runs the benchmark and prints its text on standard output. Returns the exit code.
int steps_bench_main(const StepsBenchOptions& options, const std::string& command);

}  // namespace baton
