/// The options for finding a model, loading it and running an engine, as plain values that a program or a binding
/// sets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/result.h"
#include "engine/engine_options.h"

namespace baton {

/// The allowed values of the text options.
inline constexpr auto kLoadFormats = std::to_array<std::string_view>({"auto", "safetensors", "dummy"});
inline constexpr auto kDtypeNames =
    std::to_array<std::string_view>({"auto", "bfloat16", "bf16", "float16", "half", "float32", "float"});
inline constexpr auto kKvDtypeNames = std::to_array<std::string_view>(
    {"auto", "bfloat16", "bf16", "float16", "half", "float32", "float", "fp8", "fp8_e4m3", "float8_e4m3"});
inline constexpr auto kStateDtypeNames = std::to_array<std::string_view>({"auto", "float32", "float", "bfloat16", "bf16"});
inline constexpr auto kQuantizationNames =
    std::to_array<std::string_view>({"fp8", "int8", "int4", "compressed-tensors", "gptq", "gptq_marlin", "awq", "awq_marlin",
                                     "fbgemm_fp8", "modelopt", "modelopt_fp4", "mxfp4"});
inline constexpr auto kActivationDtypes = std::to_array<std::string_view>({"auto", "fp8", "int8", "dtype"});
inline constexpr auto kAttentionNames = std::to_array<std::string_view>({"relay", "paged"});
inline constexpr auto kSchedulingPolicies = std::to_array<std::string_view>({"fair", "fcfs", "priority"});
inline constexpr auto kOffloadingBackends = std::to_array<std::string_view>({"native"});
inline constexpr auto kGenerationConfigs = std::to_array<std::string_view>({"auto", "vllm"});

/// An engine's options as they are set by a program, and what finds and loads a model. Each field has the name and the
/// meaning of a flag (`baton serve --help`). engine_options() sets relay, has_priorities, by_size, kv_dtype,
/// state_dtype, host_tier_bytes and step_timeout_ms of the engine by fields of this struct.
struct ModelOptions : EngineOptions {
  std::string model;  ///< folder or Hugging Face id; empty or "demo": the demo model
  std::string revision = "main";
  std::string download_dir;                      ///< empty: the Hugging Face cache
  std::string load_format = "auto";              ///< one of kLoadFormats
  std::string dtype = "auto";                    ///< one of kDtypeNames
  std::string quantization;                      ///< one of kQuantizationNames; empty: as the checkpoint has it
  bool quantize_lm_head = false;                 ///< the output layer too, where weights are quantised at load
  std::string activation_dtype = "auto";         ///< one of kActivationDtypes: see activation_dtype.h
  std::string device = "cpu";                    ///< a module that make_backend knows
  int threads = 0;                               ///< of a CPU; 0: as many as affinity and quota allow
  std::string attention = "relay";               ///< one of kAttentionNames
  double step_timeout_s = 60;                    ///< up to a day; 0: never
  std::string kv_cache_dtype = "auto";           ///< one of kKvDtypeNames; auto: the weights'
  std::string state_cache_dtype = "auto";        ///< one of kStateDtypeNames; auto: float32
  double kv_offloading_size = 0;                 ///< GiB of host memory for what the cache evicts; 0: none
  std::string kv_offloading_backend = "native";  ///< one of kOffloadingBackends
  std::string scheduling_policy = "fair";        ///< one of kSchedulingPolicies
  std::string chat_template;                     ///< a file; empty: the model's own template
  std::string tool_call_parser = "auto";   ///< "auto": what the template shows; "none"; or a name of parsers::MessageFormat
  std::string reasoning_parser = "auto";   ///< likewise
  std::string generation_config = "auto";  ///< one of kGenerationConfigs
};

/// What numbers are stored in on a device.
struct LoadDtypes {
  DType weights = DType::f32;  ///< of dense weights and of the activations
  DType kv = DType::f32;       ///< of the cache
  DType states = DType::f32;   ///< of the matrices of recurrent states
};

/// Refuses words and numbers that no later check refuses, by the name of the field. The numbers that the engine itself
/// checks are left to it.
Result<void> check_model_options(const ModelOptions& options);

}  // namespace baton
