/// The options for finding a model, loading it and running an engine, as plain values that a program or a binding
/// sets.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "engine/request/speculation.h"

namespace baton {

class RankGroup;

/// The allowed values of the text options.
inline constexpr auto kLoadFormats = std::to_array<std::string_view>({"auto", "safetensors", "dummy"});
inline constexpr auto kDtypeNames =
    std::to_array<std::string_view>({"auto", "bfloat16", "bf16", "float16", "half", "float32", "float"});
inline constexpr auto kKvDtypeNames = std::to_array<std::string_view>(
    {"auto", "bfloat16", "bf16", "float16", "half", "float32", "float", "fp8", "fp8_e4m3", "float8_e4m3"});
inline constexpr auto kAttentionNames = std::to_array<std::string_view>({"relay", "paged"});
inline constexpr auto kSchedulingPolicies = std::to_array<std::string_view>({"fair", "fcfs", "priority"});
inline constexpr auto kOffloadingBackends = std::to_array<std::string_view>({"native"});
inline constexpr auto kGenerationConfigs = std::to_array<std::string_view>({"auto", "vllm"});

/// Each field has the name and the meaning of a flag (`baton serve --help`).
struct ModelOptions {
  std::string model;  ///< folder or Hugging Face id; empty or "demo": the demo model
  std::string revision = "main";
  std::string download_dir;          ///< empty: the Hugging Face cache
  std::string load_format = "auto";  ///< one of kLoadFormats
  std::string dtype = "auto";        ///< one of kDtypeNames
  std::string device = "cpu";        ///< a module that make_backend knows
  int threads = 0;                   ///< of a CPU; 0: as many as affinity and quota allow
  bool enforce_eager = false;
  std::string attention = "relay";  ///< one of kAttentionNames
  bool batch_invariant = false;
  bool enable_prefix_caching = true;
  bool kv_events = false;          ///< see EngineOptions; no flag of its own
  std::int32_t max_model_len = 0;  ///< tokens; 0: the model's; kFittingLength (see EngineOptions)
  std::int32_t max_num_seqs = 128;
  std::int32_t max_num_batched_tokens = 2048;
  std::int32_t max_prefill_tokens = 0;  ///< 0: the device's default
  SpeculationOptions speculation;
  double step_timeout_s = 60;                    ///< up to a day; 0: never
  std::int32_t block_size = 16;                  ///< tokens
  std::string kv_cache_dtype = "auto";           ///< one of kKvDtypeNames; auto: the weights'
  std::int64_t kv_cache_memory_bytes = 0;        ///< 0: what the requests can use, at most a share of free memory
  double gpu_memory_utilization = 0.9;           ///< that share, from 0.01 to 1
  double kv_offloading_size = 0;                 ///< GiB of host memory for what the cache evicts; 0: none
  std::string kv_offloading_backend = "native";  ///< one of kOffloadingBackends
  std::string scheduling_policy = "fair";        ///< one of kSchedulingPolicies
  std::int32_t max_num_queued_reqs = 0;          ///< sequences that may wait; 0: no limit
  std::int32_t max_pinned_blocks = 0;            ///< 0: all but one sequence of the longest
  std::uint64_t seed = 0;                        ///< of requests that bring none, and of dummy weights
  std::string chat_template;                     ///< a file; empty: the model's own template
  std::string tool_call_parser = "auto";   ///< "auto": what the template shows; "none"; or a name of parsers::MessageFormat
  std::string reasoning_parser = "auto";   ///< likewise
  std::string generation_config = "auto";  ///< one of kGenerationConfigs
  std::shared_ptr<RankGroup> ranks;        ///< of which this process is one (`--tensor-parallel-size`); null: it is alone
};

/// Refuses words and numbers that no later check refuses, by the name of the field. The numbers that the engine itself
/// checks are left to it.
Result<void> check_model_options(const ModelOptions& options);

}  // namespace baton
