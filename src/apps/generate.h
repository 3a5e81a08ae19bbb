/// `baton generate`: JSON lines in, JSON lines out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/options.h"

namespace baton {

struct GenerateOptions {
  ModelFlags model;
  std::string prompts = "-";          ///< a file, or - for standard input
  std::optional<double> temperature;  ///< for lines without one
  std::optional<std::int32_t> max_tokens;
};

void add_generate_options(CLI::App& app, GenerateOptions& options);

/// Results on standard output, everything else on standard error. Exit code: 0, 1 (failed), 2 (usage). Ctrl-C keeps
/// finished lines.
int generate_main(const GenerateOptions& options);

}  // namespace baton
