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

namespace baton {

/// What it takes to load a model and run an engine over it.
struct ModelOptions {
  std::string model;  ///< folder or Hugging Face id; empty or "demo": the demo model
  std::string revision = "main";
  std::string download_dir;
  std::string load_format = "auto";  ///< auto, safetensors, dummy
  std::string dtype = "auto";
  std::string device = "cpu";
  int threads = 0;
  bool enforce_eager = false;
  std::string attention = "relay";
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  std::int32_t max_model_len = 0;
  std::int32_t max_num_seqs = 128;
  std::int32_t max_num_batched_tokens = 2048;
  std::int32_t max_prefill_tokens = 0;
  std::string speculative_config;  ///< JSON; empty: no speculation
  double step_timeout_s = 60;
  std::int32_t block_size = 16;
  std::string kv_cache_dtype = "auto";
  std::string kv_cache_memory_bytes;  ///< with K, M or G
  double gpu_memory_utilization = 0.9;
  std::int32_t max_num_queued_reqs = 0;
  std::int32_t max_pinned_blocks = 0;
  std::uint64_t seed = 0;
  std::string chat_template;          ///< a file
  std::vector<std::string> prefixes;  ///< NAME=FILE
  std::string generation_config = "auto";
  std::string log_level = "info";
};

/// Adds the rows of ModelOptions; what `options` has is what help texts show as defaults.
void add_model_options(CLI::App& app, ModelOptions& options);

/// Sets the level of the log as --log-level says.
void use_log_level(const ModelOptions& options);

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
