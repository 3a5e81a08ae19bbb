/// Models of benchmarks: shapes by name and by folder, and the memory that they need.
#include "bench/engine/bench_model.h"

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/source_folder.h"

namespace baton {
namespace {

TEST(BenchModel, of_a_shape_has_random_weights_and_that_of_a_folder_its_own) {
  const auto named = find_bench_model({}, "110m");
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->files.name, "110m");
  EXPECT_EQ(named->options.load_format, "dummy");
  EXPECT_NEAR(static_cast<double>(named->spec.n_parameters()), 110e6, 1e6);
  const std::string folder = (test::source_folder() / "bench/shapes/phi-2").string();
  const auto in_folder = find_bench_model({}, folder);
  ASSERT_TRUE(in_folder) << in_folder.error().message;
  EXPECT_EQ(in_folder->files.folder, folder);
  const auto demo = find_bench_model({}, "");
  ASSERT_TRUE(demo) << demo.error().message;
  EXPECT_TRUE(demo->files.is_demo);
  EXPECT_EQ(demo->options.load_format, "auto");
}

TEST(BenchModel, lists_the_shapes_that_there_are) {
  const auto found = find_bench_model({}, "llama-2-7");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::not_found);
  EXPECT_TRUE(found.error().message.starts_with("--shape llama-2-7: neither a folder nor one of 110m, "))
      << found.error().message;
  EXPECT_NE(found.error().message.find(", llama-2-7b, "), std::string::npos) << found.error().message;
}

TEST(BenchModel, needs_memory_for_weights_and_one_context) {
  ModelOptions options;
  options.kv_cache_dtype = "bfloat16";
  auto model = find_bench_model(options, "llama-2-7b");
  ASSERT_TRUE(model) << model.error().message;
  constexpr std::int64_t kTokenBytes = 2 * 32 * 32 * 128 * 2;  // K and V, layers, heads, head size, bf16
  const auto need = memory_need(*model, 1000);
  ASSERT_TRUE(need) << need.error().message;
  const int weight_bytes =
      make_backend("cpu", {}).value()->capabilities().has_bf16_matmul ? 2 : 4;  // of bf16, or of f32 in its place
  EXPECT_NEAR(static_cast<double>(need->needed_bytes), weight_bytes * 6.738e9 + 1000 * kTokenBytes, 0.004e9);
  EXPECT_GT(need->available_bytes, 0);
  EXPECT_FALSE(need->device.empty());
  model->options.kv_cache_bytes = 4000 * kTokenBytes;  // all of it is wanted
  EXPECT_EQ(memory_need(*model, 1000)->needed_bytes - need->needed_bytes, 3000 * kTokenBytes);
  model->options.kv_cache_bytes = 999 * kTokenBytes;  // too little for one context
  EXPECT_EQ(memory_need(*model, 1000)->needed_bytes, 1000 * kTokenBytes);
  EXPECT_EQ(memory_need(*model, 1000)->available_bytes, 999 * kTokenBytes);
}

}  // namespace
}  // namespace baton
