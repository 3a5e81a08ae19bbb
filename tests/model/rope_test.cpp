/// Rotation frequencies compared with those of Transformers 5.17 and 5.23 (modeling_rope_utils.py).
#include "model/rope.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

RopeSpec rope_with(double theta, RopeScaling scaling) { return {.rotary_dim = 16, .theta = theta, .scaling = scaling}; }

void expect_close(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 3e-7) << i;  // f32 roundings
}

TEST(Rope, frequencies_fall_as_powers_of_theta) {
  const auto found = rope_frequencies(rope_with(10000, {}), 1);
  ASSERT_EQ(found.size(), 8u);
  EXPECT_EQ(found[0], 1.0f);
  EXPECT_NEAR(found[4], 0.01f, 1e-8);
}

TEST(Rope, linear_scaling_equals_transformers) {
  expect_close(rope_frequencies(rope_with(10000, {.kind = RopeScaling::Kind::linear, .factor = 2.5}), 1),
               {0.4000000059604645f, 0.12649109959602356f, 0.03999999910593033f, 0.012649111449718475f, 0.003999999724328518f,
                0.0012649111449718475f, 0.0004000000189989805f, 0.0001264911115868017f});
}

TEST(Rope, llama3_scaling_equals_transformers) {
  expect_close(rope_frequencies(rope_with(500000, {.kind = RopeScaling::Kind::llama3,
                                                   .factor = 8,
                                                   .low_freq_factor = 1,
                                                   .high_freq_factor = 4,
                                                   .original_max_position = 8192}),
                                1),
               {1.0f, 0.193922758102417f, 0.03760603070259094f, 0.00729266507551074f, 0.0005248460220173001f,
                3.428102354519069e-05f, 6.647869668086059e-06f, 1.289173155782919e-06f});
}

TEST(Rope, dynamic_scaling_takes_the_length_that_it_is_told) {
  const RopeSpec spec = rope_with(10000, {.kind = RopeScaling::Kind::dynamic, .factor = 4, .original_max_position = 64});
  const std::vector<float> unscaled = rope_frequencies(rope_with(10000, {}), 1);
  EXPECT_EQ(rope_frequencies(spec, 1), unscaled);
  EXPECT_EQ(rope_frequencies(spec, 64), unscaled);
  const std::vector<float> found = rope_frequencies(spec, 160);
  const std::vector<float> expected{1.0f,
                                    0.2394813746213913f,
                                    0.05735132098197937f,
                                    0.013734571635723114f,
                                    0.003289173822849989f,
                                    0.0007876958698034286f,
                                    0.00018863847071770579f,
                                    4.517539491644129e-05f};
  expect_close(found, expected);
}

TEST(Rope, yarn_equals_transformers) {
  expect_close(
      rope_frequencies(rope_with(10000, {.kind = RopeScaling::Kind::yarn, .factor = 4, .original_max_position = 2048}), 1),
      {1.0f, 0.3162277638912201f, 0.10000000149011612f, 0.025693506002426147f, 0.00624999962747097f, 0.0013834965648129582f,
       0.0002500000118743628f, 7.905694656074047e-05f});
  expect_close(rope_frequencies(rope_with(1000000, {.kind = RopeScaling::Kind::yarn,
                                                    .factor = 16,
                                                    .original_max_position = 512,
                                                    .beta_fast = 16,
                                                    .beta_slow = 2,
                                                    .truncate = false}),
                                1),
               {1.0f, 0.16988445818424225f, 0.005589444190263748f, 0.00035146332811564207f, 6.25000029685907e-05f,
                1.1114246262877714e-05f, 1.9764233911701012e-06f, 3.5146334198543627e-07f});
}

TEST(Rope, longrope_takes_its_long_factors_beyond_the_original_length) {
  RopeSpec spec = rope_with(10000, {.kind = RopeScaling::Kind::longrope, .original_max_position = 4096});
  for (int i = 0; i < 8; ++i) {
    spec.scaling.short_factors.push_back(1 + 0.1 * i);
    spec.scaling.long_factors.push_back(1 + 2.5 * i);
  }
  expect_close(rope_frequencies(spec, 4096),
               {1.0f, 0.2874797582626343f, 0.0833333358168602f, 0.024325214326381683f, 0.0071428571827709675f,
                0.0021081853192299604f, 0.0006249999860301614f, 0.0001860163320088759f});
  expect_close(rope_frequencies(spec, 4097),
               {1.0f, 0.09035078436136246f, 0.01666666753590107f, 0.003720326581969857f, 0.0009090909152291715f,
                0.0002342427906114608f, 6.25000029685907e-05f, 1.7093392671085894e-05f});
}

TEST(Rope, dynamic_and_yarn_make_a_model_longer) {
  const auto scaled = [](RopeScaling::Kind kind, double factor) {
    return scaled_max_position(rope_with(10000, {.kind = kind, .factor = factor, .original_max_position = 1000}), 2000);
  };
  EXPECT_EQ(scaled(RopeScaling::Kind::dynamic, 8), 8000);
  EXPECT_EQ(scaled(RopeScaling::Kind::yarn, 8), 8000);
  EXPECT_EQ(scaled(RopeScaling::Kind::yarn, 1.5), 2000) << "the config says more";
  EXPECT_EQ(scaled(RopeScaling::Kind::yarn, 1e6), 1 << 24) << "the limit";
  EXPECT_EQ(scaled(RopeScaling::Kind::linear, 8), 2000);
  EXPECT_EQ(scaled(RopeScaling::Kind::llama3, 8), 2000);
  EXPECT_EQ(scaled(RopeScaling::Kind::longrope, 8), 2000);
}

}  // namespace
}  // namespace baton
