/// Rotation frequencies against those of Transformers 5.23 (modeling_rope_utils.py).
#include "model/rope.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

RopeSpec rope_with(double theta, RopeScaling scaling) { return {.rotary_dim = 16, .theta = theta, .scaling = scaling}; }

void expect_close(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 3e-7) << i;  // a few roundings of f32
}

TEST(Rope, frequencies_fall_as_powers_of_theta) {
  const auto found = rope_frequencies(rope_with(10000, {}));
  ASSERT_EQ(found.size(), 8u);
  EXPECT_EQ(found[0], 1.0f);
  EXPECT_NEAR(found[4], 0.01f, 1e-8);
}

TEST(Rope, linear_scaling_equals_transformers) {
  expect_close(rope_frequencies(rope_with(10000, {.kind = RopeScaling::Kind::linear, .factor = 2.5})),
               {0.4000000059604645f, 0.12649109959602356f, 0.03999999910593033f, 0.012649111449718475f, 0.003999999724328518f,
                0.0012649111449718475f, 0.0004000000189989805f, 0.0001264911115868017f});
}

TEST(Rope, llama3_scaling_equals_transformers) {
  expect_close(rope_frequencies(rope_with(500000, {.kind = RopeScaling::Kind::llama3,
                                                   .factor = 8,
                                                   .low_freq_factor = 1,
                                                   .high_freq_factor = 4,
                                                   .original_max_position = 8192})),
               {1.0f, 0.193922758102417f, 0.03760603070259094f, 0.00729266507551074f, 0.0005248460220173001f,
                3.428102354519069e-05f, 6.647869668086059e-06f, 1.289173155782919e-06f});
}

}  // namespace
}  // namespace baton
