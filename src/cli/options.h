/// Command-line flags: one row each, the names that vLLM's users know and Baton's own.
///
/// Every flag can be given in the environment too (cli/flags/environment.h) and in a YAML file (`--config`); the command line wins, then
/// the environment, then the file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "load/model_options.h"
#include "ranks/rank_place.h"
#include "server/request/structured_output.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace baton {

/// The values of the flags of a program that loads a model.
struct ModelFlags : ModelOptions {
  std::vector<std::string> prefixes;  ///< NAME=FILE
  std::string log_level = "info";
};

/// A list of words in the type that CLI::IsMember needs.
std::vector<std::string> choices(std::span<const std::string_view> names);

/// Adds the rows of ModelFlags. Help texts show the values in `options` as defaults.
void add_model_options(CLI::App& app, ModelFlags& options);

/// Adds the rows of how weights are quantised.
void add_quantization_options(CLI::App& app, ModelOptions& options);

/// Adds the rows of what bounds the answers of a server, or of Python's LLM.
void add_answer_options(CLI::App& app, StructuredOutputsConfig& structured_outputs, std::int32_t& max_logprobs);

/// Adds the rows of RankFlags.
void add_rank_options(CLI::App& app, RankFlags& flags);

/// Sets the log level given by --log-level.
void use_log_level(const ModelFlags& options);

/// Makes each option of `app` that is a fraction refuse "nan", which every comparison with a limit lets pass. Call after all
/// options are added.
void refuse_not_a_number(CLI::App& app);

/// Refuses words that `app` did not know (`extras`), by name and with the nearest known flag.
Result<void> refuse_unknown_flags(const CLI::App& app, const std::vector<std::string>& extras);

/// The flag of `app` that a word of the command line names, as --x, --x=VALUE or -x; null for other words.
const CLI::Option* find_option(const CLI::App& app, const std::string& word);

/// A log line for each flag that `words` give several times, by one name or by two. The last one counts; of lists
/// (`--prefix`) all do, and there is no line.
std::vector<std::string> repeated_flags(const CLI::App& app, const std::vector<std::string>& words);

/// A command line with the flags of its `--config` file.
struct WithConfigFile {
  std::vector<std::string> words;
  std::string model;               ///< `model:`, for a command line that names none; a word anywhere in it may be MODEL
  std::string file;                ///< empty: there is none
  std::vector<std::string> flags;  ///< --x, those of the file, as it spells them
};

/// Puts the flags of the `--config` file before those of the command line, so that the command line wins. `name_of` is the
/// first name of a flag (--x) that has several; flags for whose first name `is_in_environment` is true are left out. A file
/// may have none. Errors: invalid_data, for a flag that has two keys too.
Result<WithConfigFile> with_config_file(std::vector<std::string> arguments,
                                        const std::function<std::string(const std::string& flag)>& name_of = {},
                                        const std::function<bool(const std::string& name)>& is_in_environment = {});

/// The number of bytes that "512M" means (K, M and G are powers of 1024; no letter: bytes).
Result<std::int64_t> parse_bytes(const std::string& text, const std::string& flag);

/// The whole number that "4k", "32K", "1.5M" or "4096" means (k, M and G are powers of 1024, in any case).
Result<std::int64_t> parse_count(const std::string& text);

}  // namespace baton
