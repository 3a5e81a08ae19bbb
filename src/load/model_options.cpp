/// Which values the options of a model may have.
#include "load/model_options.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

Result<void> check_word(const char* field, const std::string& value, std::span<const std::string_view> words) {
  if (std::ranges::find(words, value) != words.end()) return {};
  return fail(ErrorCode::invalid_request, fmt::format("{} must be one of {}, got '{}'", field, fmt::join(words, ", "), value),
              field);
}

Result<void> check_number(const char* field, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return fail(ErrorCode::invalid_request, fmt::format("{} must be from {} to {}, got {}", field, least, most, value), field);
}

}  // namespace

Result<void> check_model_options(const ModelOptions& options) {
  BATON_TRY_VOID(check_word("load_format", options.load_format, kLoadFormats));
  BATON_TRY_VOID(check_word("dtype", options.dtype, kDtypeNames));
  if (!options.quantization.empty()) BATON_TRY_VOID(check_word("quantization", options.quantization, kQuantizationNames));
  BATON_TRY_VOID(check_word("activation_dtype", options.activation_dtype, kActivationDtypes));
  BATON_TRY_VOID(check_word("attention", options.attention, kAttentionNames));
  BATON_TRY_VOID(check_word("scheduling_policy", options.scheduling_policy, kSchedulingPolicies));
  BATON_TRY_VOID(check_word("kv_offloading_backend", options.kv_offloading_backend, kOffloadingBackends));
  BATON_TRY_VOID(check_word("kv_cache_dtype", options.kv_cache_dtype, kKvDtypeNames));
  BATON_TRY_VOID(check_word("state_cache_dtype", options.state_cache_dtype, kStateDtypeNames));
  BATON_TRY_VOID(check_number("threads", options.threads, 0, 1 << 16));
  BATON_TRY_VOID(check_number("step_timeout", options.step_timeout_s, 0, 86400));
  BATON_TRY_VOID(check_number("gpu_memory_utilization", options.memory_utilization, 0.01, 1));
  BATON_TRY_VOID(check_number("kv_cache_memory_bytes", static_cast<double>(options.kv_cache_bytes), 0, 0x1p50));
  BATON_TRY_VOID(check_number("state_cache_memory_bytes", static_cast<double>(options.snapshot_bytes.value_or(0)), 0, 0x1p50));
  BATON_TRY_VOID(check_number("kv_offloading_size", options.kv_offloading_size, 0, 0x1p20));
  BATON_TRY_VOID(check_number("max_pinned_blocks", options.max_pinned_blocks, 0, 0x7fffffff));
  return {};
}

}  // namespace baton
