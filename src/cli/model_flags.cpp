/// The flags of programs that load a model as rows: names, help, limits.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/flag_rows.h"
#include "cli/help_text.h"
#include "cli/options.h"
#include "kernels/backend.h"
#include "parsers/message_format.h"
#include "ranks/rank_group.h"
#include "server/request/generation_fields.h"

namespace baton {
namespace {

/// What to try in place of an unknown flag.
std::string hint_for_flag(const CLI::App& app, std::string_view flag) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string_view near = near_name(flag, names);
  return near.empty() ? "--help lists those there are" : fmt::format("the nearest there is: {}", near);
}

/// "auto", "none" and the names of parsers.
std::vector<std::string> parser_names(const std::vector<std::string_view>& names) {
  std::vector<std::string> all = {"auto", "none"};
  all.insert(all.end(), names.begin(), names.end());
  return all;
}

void add_scheduler_options(CLI::App& app, ModelFlags& options) {
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.enable_prefix_caching,
               "Keep the blocks of prompts for later requests that begin alike (on)")
      ->group("Cache and scheduler");
  row(app, "Cache and scheduler", "--block-size", options.block_len, "Tokens in a block of the cache")
      ->check(CLI::IsMember({16, 32, 64, 128, 256}));
  row(app, "Cache and scheduler", "--kv-cache-dtype", options.kv_cache_dtype,
      "auto (the weights'), bfloat16, float16, float32; on CUDA fp8 (float8_e4m3, with weights in bfloat16)")
      ->check(CLI::IsMember(choices(kKvDtypeNames)));
  row(app, "Cache and scheduler", "--state-cache-dtype,--mamba-ssm-cache-dtype", options.state_cache_dtype,
      "Of the states of recurrent layers: auto (float32), float32, bfloat16 (half the bytes, rounded after each token)")
      ->check(CLI::IsMember(choices(kStateDtypeNames)));
  parsed_row(app, "Cache and scheduler", "--kv-cache-memory-bytes", options.kv_cache_bytes,
             "Size of the cache, with K, M or G; default: as much as the requests can use, at most a share of free memory",
             [](const std::string& text) { return parse_bytes(text, "--kv-cache-memory-bytes"); });
  parsed_row(app, "Cache and scheduler", "--state-cache-memory-bytes", options.snapshot_bytes,
             "Memory for snapshots of recurrent states in the prefix cache, with K, M or G; default: a quarter of what the "
             "cache may take",
             [](const std::string& text) { return parse_bytes(text, "--state-cache-memory-bytes"); });
  row(app, "Cache and scheduler", "--state-snapshot-interval", options.state_snapshot_interval,
      "Keep a snapshot of recurrent states at every so many tokens of a prompt, too, for unannounced forks: a multiple of 64 "
      "and of the block size; 0: none")
      ->transform(count_units())
      ->check(at_least_zero());
  row(app, "Cache and scheduler", "--kv-offloading-size", options.kv_offloading_size,
      "GiB of host memory for blocks and states that the cache evicts: a prompt that needs them copies them back; 0: none")
      ->check(CLI::Range(0.0, 0x1p20));
  row(app, "Cache and scheduler", "--kv-offloading-backend", options.kv_offloading_backend, "What keeps those blocks: native")
      ->check(CLI::IsMember(choices(kOffloadingBackends)));
  row(app, "Cache and scheduler", "--gpu-memory-utilization", options.memory_utilization,
      "Share of free memory that the cache may use")
      ->check(CLI::Range(0.01, 1.0));
  row(app, "Cache and scheduler", "--max-num-seqs", options.max_num_seqs, "Sequences that run at the same time")
      ->transform(count_units())
      ->check(CLI::Range(1, 4096));
  row(app, "Cache and scheduler", "--max-num-batched-tokens", options.max_num_batched_tokens, "Most tokens in a step")
      ->transform(count_units())
      ->check(CLI::Range(1, 65536));
  row(app, "Cache and scheduler", "--max-prefill-tokens", options.max_prefill_tokens,
      "Most prompt tokens in a step in which other requests decode; 0: 128 on a CPU, on CUDA as many as measured times advise")
      ->transform(count_units())
      ->check(at_least_zero());
  row(app, "Cache and scheduler", "--step-timeout", options.step_timeout_s,
      "Seconds after which an unfinished step, or a thread that hangs, is logged and /health answers 503; 0: never")
      ->check(CLI::Range(0.0, 86400.0));
  row(app, "Cache and scheduler", "--scheduling-policy", options.scheduling_policy,
      "fair: short requests need not wait for long ones; fcfs: in the order of arrival; priority: a lower 'priority' first")
      ->check(CLI::IsMember(choices(kSchedulingPolicies)));
  row(app, "Cache and scheduler", "--max-num-queued-reqs", options.max_num_queued_reqs,
      "Sequences (a request's n) that may wait for their first step; further requests get 503; 0: no limit")
      ->transform(count_units())
      ->check(at_least_zero());
}

}  // namespace

std::vector<std::string> choices(std::span<const std::string_view> names) { return {names.begin(), names.end()}; }

void add_model_options(CLI::App& app, ModelFlags& options) {
  row(app, "Options", "MODEL,--model", options.model,
      "Folder or Hugging Face id of the model; 'demo' or nothing: the demo model")
      ->default_str("");
  row(app, "Model", "--revision", options.revision, "Branch, tag or commit of the model");
  row(app, "Model", "--download-dir", options.download_dir, "Folder for downloaded models (default: the Hugging Face cache)");
  row(app, "Model", "--load-format", options.load_format, "auto, safetensors, or dummy: random weights from config.json alone")
      ->check(CLI::IsMember(choices(kLoadFormats)));
  row(app, "Model", "--dtype", options.dtype, "Data type of the weights: auto (the checkpoint's), bfloat16, float16, float32")
      ->check(CLI::IsMember(choices(kDtypeNames)));
  add_quantization_options(app, options);
  row(app, "Model", "--max-model-len", options.max_model_len,
      "Longest prompt plus answer in tokens, as 4096 or 4k; 0: the model's limit; auto: what the cache has room for")
      ->transform(count_units(/*has_auto=*/true));
  row(app, "Model", "--chat-template", options.chat_template, "File with a chat template that replaces the model's")
      ->check(CLI::ExistingFile);
  row(app, "Model", "--tool-call-parser", options.tool_call_parser,
      "Format of tool calls: auto (as the chat template shows), none, or a name: see docs/tools.md")
      ->check(CLI::IsMember(parser_names(parsers::MessageFormat::tool_parsers())));
  row(app, "Model", "--reasoning-parser", options.reasoning_parser,
      "Format of reasoning: auto (as the chat template shows), none, or a name: see docs/tools.md")
      ->check(CLI::IsMember(parser_names(parsers::MessageFormat::reasoning_parsers())));
  row(app, "Model", "--generation-config", options.generation_config,
      "auto: the model's generation_config.json sets sampling defaults; a folder: that folder's does; vllm: none does")
      ->check(CLI::IsMember(choices(kGenerationConfigs)) | CLI::ExistingDirectory);
  row(app, "Model", "--seed", options.seed, "Seed for requests without one");

  row(app, "Device", "--device", options.device, "cpu or cuda")->check(CLI::IsMember(choices(kBackendNames)));
  row(app, "Device", "--threads", options.threads, "Threads of the CPU backend; 0: as many as CPU affinity and quota allow")
      ->check(at_least_zero());
  app.add_flag("--enforce-eager", options.enforce_eager,
               "Launch the operations of a decode step one by one instead of as a CUDA graph; no effect on a CPU")
      ->group("Device");

  row(app, "Attention", "--attention", options.attention,
      "relay: shared prompts are read once per step for all requests; paged: each request reads them")
      ->check(CLI::IsMember(choices(kAttentionNames)));
  app.add_flag("--batch-invariant", options.batch_invariant,
               "Bit-identical answers alone or in a batch, with a cold or warm cache, relay or paged; slower")
      ->group("Attention");

  add_scheduler_options(app, options);

  json_row(app, "Speculation", "--speculative-config", options.speculation,
           "JSON, as {\"method\": \"ngram\", \"num_speculative_tokens\": 4}: draft the tokens that followed "
           "the same prompt_lookup_min (2) to prompt_lookup_max (4) tokens earlier; same answers, sooner. With method "
           "mtp (1): those of the checkpoint's layer for multi-token prediction",
           parse_speculative_config);
  app.add_option("--prefix", options.prefixes,
                 "NAME=FILE: a shared prompt (a text file is a system message, a .json file a list of "
                 "messages), computed and pinned before the first request")
      ->take_all()
      ->allow_extra_args(false)
      ->group("Prefixes");
  row(app, "Prefixes", "--max-pinned-blocks", options.max_pinned_blocks,
      "Cache blocks that registered prompts may keep; 0: all except those of one longest sequence")
      ->transform(count_units())
      ->check(at_least_zero());

  row(app, "Log", "--log-level", options.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_option("--config", "YAML file with flags (`max-num-seqs: 64`); the command line wins")
      ->check(CLI::ExistingFile)
      ->group("Log");
}

void add_quantization_options(CLI::App& app, ModelOptions& options) {
  row(app, "Model", "-q,--quantization", options.quantization,
      "fp8, int8 or int4: round the weights of a dense checkpoint at load; of a quantised one, its method by vLLM's name")
      ->check(CLI::IsMember(choices(kQuantizationNames)))
      ->default_str("");
  app.add_flag("--quantize-lm-head", options.quantize_lm_head,
               "Round the output layer, too, where --quantization rounds weights")
      ->group("Model");
  row(app, "Model", "--activation-dtype", options.activation_dtype,
      "What quantised weights multiply: fp8 (FP8 weights in steps of many tokens), int8 (int8 and int4 weights on a CPU), "
      "dtype (--dtype's), or auto: fp8 or int8 where the checkpoint states it and the device gains by it")
      ->check(CLI::IsMember(choices(kActivationDtypes)));
}

void add_answer_options(CLI::App& app, StructuredOutputsConfig& structured_outputs, std::int32_t& max_logprobs) {
  row(app, "Server", "--max-logprobs", max_logprobs, "Alternatives with log-probabilities a request may ask for")
      ->check(CLI::Range(0, 20));
  json_row(app, "Server", "--structured-outputs-config", structured_outputs,
           "JSON: disable_any_whitespace, cache_bytes, max_grammar_bytes, max_states; see docs/api.md",
           parse_structured_outputs_config);
}

void add_rank_options(CLI::App& app, RankFlags& flags) {
  row(app, "Tensor parallelism", "--tensor-parallel-size", flags.tensor_parallel_size,
      "Processes (-tp), each with a device and a part of every layer; they run on this host unless --rank or a launcher "
      "(torchrun, mpirun, Kubernetes) says which one this is: see docs/parallel.md")
      ->check(CLI::Range(1, kMaxRanks));
  row(app, "Tensor parallelism", "--rank", flags.rank, "Which of them this process is, if another program starts all: from 0")
      ->check(CLI::Range(0, kMaxRanks - 1))
      ->default_str("");
  row(app, "Tensor parallelism", "--world-size", flags.world_size,
      "Number of ranks beside --rank; must equal --tensor-parallel-size")
      ->check(CLI::Range(1, kMaxRanks))
      ->default_str("");
  row(app, "Tensor parallelism", "--master-addr", flags.master_addr, "Host name or address of rank 0 (MASTER_ADDR; 127.0.0.1)")
      ->default_str("");
  row(app, "Tensor parallelism", "--master-port", flags.master_port, "Port of rank 0 for the other ranks (MASTER_PORT; 29500)")
      ->check(CLI::Range(1, 65535))
      ->default_str("");
  row(app, "Tensor parallelism", "--rank-hang-timeout", flags.rank_hang_timeout_s,
      "Seconds without a sign of life after which a rank is given up and the service ends; rank 0's value counts")
      ->check(CLI::Range(1.0, 3600.0));
}

void refuse_not_a_number(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (!option->get_type_name().starts_with("FLOAT")) continue;
    option->check([](const std::string& text) {
      return std::isnan(std::strtod(text.c_str(), nullptr)) ? "'" + text + "' is not a number" : std::string();
    });
  }
}

const CLI::Option* find_option(const CLI::App& app, const std::string& word) {
  return word.starts_with("-") ? app.get_option_no_throw(word.substr(0, word.find('='))) : nullptr;
}

std::vector<std::string> repeated_flags(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> lines;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_multi_option_policy() != CLI::MultiOptionPolicy::TakeLast) continue;
    std::vector<std::string> given;
    for (const std::string& word : words)
      if (find_option(app, word) == option) given.push_back(word.substr(0, word.find('=')));
    if (given.size() < 2) continue;
    const auto other = std::ranges::find_if(given, [&](const std::string& name) { return name != given.back(); });
    lines.push_back(fmt::format("flag={} effect=last reason=\"{}given {} times; the last one counts\"", given.back(),
                                other == given.end() ? "" : fmt::format("another name of {}, ", *other), given.size()));
  }
  return lines;
}

Result<void> refuse_unknown_flags(const CLI::App& app, const std::vector<std::string>& extras) {
  if (extras.empty()) return {};
  // An unknown flag is named rather than an unknown word, because the word is probably its value.
  const auto flag = std::find_if(extras.begin(), extras.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (flag == extras.end()) return fail(ErrorCode::invalid_request, fmt::format("unexpected argument '{}'", extras[0]));
  const std::string name = flag->substr(0, flag->find('='));
  return fail(ErrorCode::invalid_request, fmt::format("unknown flag {}; {}", name, hint_for_flag(app, name)), name);
}

}  // namespace baton
