/// Command-line flags: one row each, the names that vLLM's users know and Baton's own.
///
/// Every flag can be given in the environment too (BATON_ and the flag's name in capitals) and in a YAML file (`--config`); the
/// command line wins, then the environment, then the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/result.h"
#include "load/model_options.h"

namespace baton {

/// What the flags of a program with a model say.
struct ModelFlags : ModelOptions {
  std::vector<std::string> prefixes;  ///< NAME=FILE
  std::string log_level = "info";
};

/// Adds the rows of ModelFlags; what `options` has is what help texts show as defaults.
void add_model_options(CLI::App& app, ModelFlags& options);

/// Sets the level of the log as --log-level says.
void use_log_level(const ModelFlags& options);

/// Gives each option of `app` its environment variable. Call after all options are added.
void name_environment_variables(CLI::App& app);

/// The words without those flags of vLLM whose value says what Baton does anyway; each is taken with one log line. Another
/// value of them is refused.
Result<std::vector<std::string>> without_neutral_flags(const std::vector<std::string>& words);

/// Refuses what `app` did not know (`extras`), by name and with the nearest flag there is.
Result<void> refuse_unknown_flags(const CLI::App& app, const std::vector<std::string>& extras);

/// The arguments with what the file of `--config` says put before their flags, so that the command line wins. `model:`
/// is the positional MODEL.
Result<std::vector<std::string>> with_config_file(std::vector<std::string> arguments);

/// "512M" in bytes (K, M and G are powers of 1024; none: bytes).
Result<std::int64_t> parse_bytes(const std::string& text, const std::string& flag);

}  // namespace baton
