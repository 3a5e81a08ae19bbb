/// Models whose experts are in 8 and 4 bits compute the same on every device and in every dtype, and with batch_invariant models
/// with any experts give a row the same bits in any company.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/golden_model.h"
#include "support/source_folder.h"

namespace baton {
namespace {

using testing::Golden;
using testing::GoldenModel;
using testing::GoldenOptions;

std::filesystem::path folder_of(const std::string& name) { return test::source_folder() / "tests/goldens" / name; }

Golden golden_of(const std::string& name) { return Golden(folder_of(name) / "golden.safetensors"); }

std::vector<float> logits_with(const std::string& name, DType dtype, const GoldenOptions& options) {
  const auto ids = golden_of(name).read<std::int32_t>("input_ids");
  GoldenModel model(folder_of(name), dtype, options);
  EXPECT_EQ(model.model->weight_scheme(), to_string(options.rounding.scheme));
  return model.run(std::vector<TokenId>(ids.begin(), ids.end()), 0, true, nullptr);
}

/// How many rows of logits [n_rows, n_vocab] are farther than `bound` from those expected.
int n_rows_beyond(double bound, std::span<const float> logits, std::span<const float> expected, std::size_t n_rows) {
  const std::size_t n_vocab = expected.size() / n_rows;
  int n_beyond = 0;
  for (std::size_t begin = 0; begin < expected.size(); begin += n_vocab)
    if (testing::relative_error(logits.subspan(begin, n_vocab), expected.subspan(begin, n_vocab)) > bound) ++n_beyond;
  return n_beyond;
}

// A near tie between two experts may be decided otherwise in bf16 and f16: int4 weights of the Mixtral have one, in one row.
TEST(QuantisedExperts, logits_are_those_of_float32_on_the_cpu) {
  for (const char* name : {"qwen3_moe_tiny_shares", "mixtral_tiny_experts", "gpt_oss_tiny_sinks"})
    for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4}) {
      SCOPED_TRACE(std::string(name) + ' ' + std::string(to_string(scheme)));
      GoldenOptions options{.max_positions = 128, .rounding = {.scheme = scheme, .group = 32}};
      const std::vector<float> expected = logits_with(name, DType::f32, options);
      const std::size_t n_rows = golden_of(name).read<std::int32_t>("input_ids").size();
      const auto expect_near = [&](const std::string& device, DType dtype, double bound) {
        options.device = device;
        const std::vector<float> logits = logits_with(name, dtype, options);
        ASSERT_EQ(logits.size(), expected.size());
        EXPECT_LE(n_rows_beyond(bound, logits, expected, n_rows), 1) << device << ' ' << to_string(dtype);
      };
      for (const std::string& device : testing::devices_with_bf16()) expect_near(device, DType::bf16, 2e-2);
      for (const std::string& device : testing::devices_with_f16()) expect_near(device, DType::f16, 4e-3);
    }
}

// The prompt in one step, in two, and row by row.
TEST(QuantisedExperts, batch_invariant_rows_have_the_same_bits_in_any_company) {
  std::vector<std::pair<std::string, DType>> cases{{"cpu", DType::f32}};
  for (const std::string& device : testing::devices_with_bf16()) cases.emplace_back(device, DType::bf16);
  for (const char* name : {"mixtral_tiny_experts", "qwen2_moe_tiny_shared", "glm4_moe_tiny_groups", "gpt_oss_tiny_sinks"})
    for (const WeightScheme scheme : {WeightScheme::dense, WeightScheme::i4})
      for (const auto& [device, dtype] : cases) {
        SCOPED_TRACE(device + ' ' + name + ' ' + std::string(to_string(scheme)));
        const auto read = golden_of(name).read<std::int32_t>("input_ids");
        const std::vector<TokenId> ids(read.begin(), read.end());
        GoldenModel model(
            folder_of(name), dtype,
            {.device = device, .max_positions = 128, .batch_invariant = true, .rounding = {.scheme = scheme, .group = 32}});
        const std::vector<float> together = model.run(ids, 0, true, nullptr);
        const std::size_t n_vocab = together.size() / ids.size();
        for (const std::size_t step : {std::size_t{1}, ids.size() / 2}) {
          std::vector<float> cut;
          for (std::size_t begin = 0; begin < ids.size(); begin += step) {
            const std::size_t n = std::min(step, ids.size() - begin);
            const auto logits = model.run(std::span(ids).subspan(begin, n), static_cast<std::int32_t>(begin), true, nullptr);
            ASSERT_EQ(logits.size(), n * n_vocab);
            cut.insert(cut.end(), logits.begin(), logits.end());
          }
          EXPECT_EQ(std::memcmp(cut.data(), together.data(), together.size() * sizeof(float)), 0) << step << " rows a step";
        }
      }
}

}  // namespace
}  // namespace baton
