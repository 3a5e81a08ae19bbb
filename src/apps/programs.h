/// The subcommands of `baton` but serve: the options of each, the flags that set them, and the function that runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/options.h"
#include "engine/step/replay.h"
#include "load/model_info.h"

namespace baton {

// `baton generate`: JSON lines in, JSON lines out.

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

// `baton chat`: talk to a model on the terminal.

struct ChatOptions {
  ModelFlags model;
  std::string system;  ///< text of a system message
  /// Name of a registered prompt to begin with; empty: the only --prefix, or the demo model's shop if there is no
  /// model.
  std::string prefix;
  std::string tools;              ///< file with a list of tools as in the API; empty: none
  std::string tool_choice;        ///< see Conversation::Options
  bool keeps_no_history = false;  ///< lines that are typed are not kept for later runs
  double temperature = -1;        ///< -1: the model's default
  std::int32_t max_tokens = 0;    ///< of an answer; 0: the rest of the context
};

void add_chat_options(CLI::App& app, ChatOptions& options);

/// Reads lines until the end of the input and prints each answer while it is generated. Exit code: 0, 1 (failed) or 2
/// (flags that contradict each other).
int chat_main(ChatOptions options);

// `baton simulate`: a trace replayed through scheduler and cache without a model, in seconds.

struct SimulateOptions {
  std::string trace = "-";  ///< a file, or - for standard input
  std::int64_t cache_tokens = 0;
  ReplayOptions replay;                    ///< but for what the following fields set
  std::string eviction = "reuse";          ///< or lru
  std::string scheduling_policy = "fair";  ///< or fcfs
  double step_ms = 10;
  double tokens_per_second = 50000;
  std::string step_costs_file;  ///< measured times in place of these two
  double rate = 1;
  std::int64_t limit = 0;
  std::string json_file;
};

void add_simulate_options(CLI::App& app, SimulateOptions& options);

/// A table on standard output. Exit code: 0, 1 (failed).
int simulate_main(const SimulateOptions& options, const std::string& command);

// `baton tokenize`: texts to token ids and back, as JSON lines.

struct TokenizeOptions {
  ModelOptions model;                ///< model, revision, download_dir and threads
  bool no_special_tokens = false;    ///< nothing is put around texts
  bool decode = false;               ///< the lines are lists of ids
  bool skip_special_tokens = false;  ///< of decoded ids
};

void add_tokenize_options(CLI::App& app, TokenizeOptions& options);

/// Reads standard input: each line is a JSON string, each output line the list of its token ids; with `decode` each
/// line is a list of ids, each output line their text. Reads no weights. Exit code: 0, 1 (failed) or 2 (flags that
/// contradict each other).
int tokenize_main(const TokenizeOptions& options);

// `baton render`: conversations to the text or the token ids that a model gets, as JSON lines.

struct RenderOptions {
  ModelOptions model;   ///< model, revision, download_dir, chat_template and threads
  bool tokens = false;  ///< token ids in place of text
};

void add_render_options(CLI::App& app, RenderOptions& options);

/// Reads standard input: each line is an object with `messages` and, as the caller of Transformers'
/// apply_chat_template would give them, `tools`, `documents`, `chat_template_kwargs`, `add_generation_prompt`,
/// `continue_final_message` and `chat_template`. Each output line is {"prompt": text} or {"prompt_token_ids": ids}.
/// Reads no weights. Exit code: 0, 1 (failed).
int render_main(const RenderOptions& options);

// `baton info`: what a model is and needs, without loading it.

struct InfoOptions {
  ModelOptions model;             ///< model, revision, download_dir, device, quantization, kv_cache_dtype...
  std::int64_t memory_bytes = 0;  ///< 0: what is free on the device
  std::int32_t context_len = 0;   ///< tokens; 0: the model's longest, at most 8192
  SharedWorkload workload;
  bool as_json = false;
};

void add_info_options(CLI::App& app, InfoOptions& options);

/// Prints a table or one JSON object on standard output. Exit code: 0, 1 (failed).
int info_main(const InfoOptions& options);

// `baton quantize`: a checkpoint with weights in 8 or 4 bits, for Baton and for other engines.

struct QuantizeOptions {
  ModelOptions model;      ///< model, revision, download_dir and threads
  std::string out;         ///< a folder that does not exist
  std::string scheme;      ///< fp8, int8 or int4
  std::int64_t group = 0;  ///< of int4: columns that share a scale; 0: 128
  bool quantize_lm_head = false;
};

void add_quantize_options(CLI::App& app, QuantizeOptions& options);

/// Prints what rounding changed in each matrix on standard output. Exit code: 0, 1 (failed).
int quantize_main(const QuantizeOptions& options);

// `baton pull` and `baton list`: models in the Hugging Face cache.

struct PullOptions {
  ModelOptions model;  ///< model, revision and download_dir
};
struct ListOptions {
  std::string download_dir;  ///< empty: the Hugging Face cache
  bool as_json = false;
};

void add_pull_options(CLI::App& app, PullOptions& options);
void add_list_options(CLI::App& app, ListOptions& options);

/// Downloads what the cache does not have of a model and prints the folder. Exit code: 0, 1 (failed) or 2 (no name).
int pull_main(const PullOptions& options);

/// Prints the models of the cache with revision, size, architecture and what is missing. Exit code: 0, 1 (failed).
int list_main(const ListOptions& options);

}  // namespace baton
