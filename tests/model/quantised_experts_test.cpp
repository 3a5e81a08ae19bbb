/// Models whose experts are in 8 and 4 bits compute the same on every device and in every dtype.
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

std::vector<float> logits_with(const std::string& name, DType dtype, const GoldenOptions& options) {
  const std::filesystem::path folder = test::source_folder() / "tests/goldens" / name;
  const auto ids = Golden(folder / "golden.safetensors").read<std::int32_t>("input_ids");
  GoldenModel model(folder, dtype, options);
  EXPECT_EQ(model.model->weight_scheme(), to_string(options.rounding.scheme));
  return model.run(std::vector<TokenId>(ids.begin(), ids.end()), 0, true, nullptr);
}

// A near tie between two experts may be decided otherwise in bf16 and f16: the weights of these models have none.
TEST(QuantisedExperts, logits_are_those_of_float32_on_the_cpu) {
  for (const char* name : {"qwen3_moe_tiny_shares", "mixtral_tiny_experts"})
    for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4}) {
      SCOPED_TRACE(std::string(name) + ' ' + std::string(to_string(scheme)));
      GoldenOptions options{.max_positions = 128, .rounding = {.scheme = scheme, .group = 32}};
      const std::vector<float> expected = logits_with(name, DType::f32, options);
      const auto expect_near = [&](const std::string& device, DType dtype, double bound) {
        options.device = device;
        EXPECT_LE(testing::relative_error(logits_with(name, dtype, options), expected), bound)
            << device << ' ' << to_string(dtype);
      };
      for (const testing::TestBackend& test : testing::test_backends())
        if (test.is_cuda()) expect_near("cuda", DType::f32, 1e-4);
      for (const std::string& device : testing::devices_with_bf16()) expect_near(device, DType::bf16, 3e-2);
      for (const std::string& device : testing::devices_with_f16()) expect_near(device, DType::f16, 4e-3);
    }
}

}  // namespace
}  // namespace baton
