/// `baton bench ablation`: what each lesson of vLLM's issue 421 is worth, alone. The same requests run with Baton as it
/// is, and with one of the slow habits that the issue found.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "bench/offline/offline_bench.h"

namespace CLI {
class App;
}

namespace baton {

/// baton: one sampling call and one copy of results a step, text made beside the thread that steps; sample-each: a
/// sampling call for each sequence; copy-each: each result is copied alone, and waited for; detokenize-on-step: text is
/// made by the thread that steps; all: the three together.
inline constexpr auto kAblationArms =
    std::to_array<std::string_view>({"baton", "sample-each", "copy-each", "detokenize-on-step", "all"});

struct AblationBenchOptions : OfflineBenchOptions {
  AblationBenchOptions();
};

/// Adds the flags only.
void add_ablation_bench_options(CLI::App& app, AblationBenchOptions& options);

/// Runs the benchmark and prints the command, the machine and a table on standard output. Returns the exit code.
int ablation_bench_main(const AblationBenchOptions& options, const std::string& command);

}  // namespace baton
