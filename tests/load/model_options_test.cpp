/// Model options that are refused before anything is loaded (load/model_options.h).
#include "load/model_options.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "core/dtype.h"

namespace baton {
namespace {

/// The field that is refused after `change`; empty if none is.
std::string refused_after(const std::function<void(ModelOptions&)>& change) {
  ModelOptions options;
  change(options);
  const auto checked = check_model_options(options);
  return checked ? "" : checked.error().param;
}

TEST(ModelOptions, defaults_and_every_listed_word_are_taken) {
  EXPECT_TRUE(check_model_options({}));
  for (const auto word : kLoadFormats) EXPECT_EQ(refused_after([&](auto& o) { o.load_format = word; }), "");
  for (const auto word : kQuantizationNames) EXPECT_EQ(refused_after([&](auto& o) { o.quantization = word; }), "");
  for (const auto word : kAttentionNames) EXPECT_EQ(refused_after([&](auto& o) { o.attention = word; }), "");
  for (const auto word : kDtypeNames) {
    EXPECT_EQ(refused_after([&](auto& o) { o.dtype = word; }), "");
    EXPECT_TRUE(word == "auto" || dtype_from_name(word)) << word;
  }
  for (const auto word : kKvDtypeNames) {
    EXPECT_EQ(refused_after([&](auto& o) { o.kv_cache_dtype = word; }), "");
    EXPECT_TRUE(word == "auto" || dtype_from_name(word)) << word;
  }
  for (const auto word : kStateDtypeNames) {
    EXPECT_EQ(refused_after([&](auto& o) { o.state_cache_dtype = word; }), "");
    EXPECT_TRUE(word == "auto" || dtype_from_name(word)) << word;
  }
}

TEST(ModelOptions, other_words_and_numbers_out_of_range_are_refused_by_name) {
  EXPECT_EQ(refused_after([](auto& o) { o.load_format = "gguf"; }), "load_format");
  EXPECT_EQ(refused_after([](auto& o) { o.dtype = "int8"; }), "dtype");
  EXPECT_EQ(refused_after([](auto& o) { o.dtype = "fp8"; }), "dtype");
  EXPECT_EQ(refused_after([](auto& o) { o.attention = ""; }), "attention");
  EXPECT_EQ(refused_after([](auto& o) { o.kv_cache_dtype = "int8"; }), "kv_cache_dtype");
  EXPECT_EQ(refused_after([](auto& o) { o.state_cache_dtype = "float16"; }), "state_cache_dtype");
  EXPECT_EQ(refused_after([](auto& o) { o.quantization = "bitsandbytes"; }), "quantization");
  EXPECT_EQ(refused_after([](auto& o) { o.threads = -1; }), "threads");
  EXPECT_EQ(refused_after([](auto& o) { o.step_timeout_s = 1e9; }), "step_timeout");
  EXPECT_EQ(refused_after([](auto& o) { o.memory_utilization = 1.5; }), "gpu_memory_utilization");
  EXPECT_EQ(refused_after([](auto& o) { o.memory_utilization = std::numeric_limits<double>::quiet_NaN(); }),
            "gpu_memory_utilization");
  EXPECT_EQ(refused_after([](auto& o) { o.kv_cache_bytes = -1; }), "kv_cache_memory_bytes");
  EXPECT_EQ(refused_after([](auto& o) { o.snapshot_bytes = -1; }), "state_cache_memory_bytes");
  EXPECT_EQ(refused_after([](auto& o) { o.max_pinned_blocks = -1; }), "max_pinned_blocks");
  EXPECT_EQ(refused_after([](auto& o) { o.kv_offloading_size = -1; }), "kv_offloading_size");
  EXPECT_EQ(refused_after([](auto& o) { o.kv_offloading_backend = "lmcache"; }), "kv_offloading_backend");
  ModelOptions options;
  options.dtype = "int8";
  EXPECT_EQ(check_model_options(options).error().message,
            "dtype must be one of auto, bfloat16, bf16, float16, half, float32, float, got 'int8'");
}

}  // namespace
}  // namespace baton
