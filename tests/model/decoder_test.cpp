/// Whole models compared with Transformers: tiny checkpoints and the demo model.
#include "model/decoder.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "support/golden_model.h"
#include "support/source_folder.h"

namespace baton {
namespace {

using testing::devices_with_bf16;
using testing::Golden;
using testing::GoldenModel;
using testing::relative_error;

namespace fs = std::filesystem;

// bf16 activations and cache have 8 bits: a few layers of matmuls over some hundred terms stay within 2 percent.
// Weights stored with more bits, as the demo's are, add 1 percent.
constexpr double kBf16Bound = 2e-2;
constexpr double kBf16RoundedWeightsBound = 3e-2;

/// A golden of a tiny checkpoint.
class DecoderGolden : public ::testing::TestWithParam<testing::GoldenCase> {
 protected:
  GoldenModel load(DType dtype, const std::string& device = "cpu") const {
    const std::int32_t max_positions = golden_.contains("max_positions") ? golden_.read<std::int32_t>("max_positions")[0] : 0;
    return GoldenModel(GetParam().folder, dtype, {.device = device, .max_positions = max_positions});
  }
  /// Whether loading in bf16 rounds the checkpoint's weights; the expected logits are those of the weights as stored.
  bool has_rounded_weights() const {
    const auto spec = read_model_spec(GetParam().folder);
    return spec && spec->dtype == DType::f32;
  }
  /// The largest relative error of a row. `logits` has all rows of the prompt, or only the golden's.
  double row_error(std::span<const float> logits) const {
    const std::size_t n_rows = positions_.size();
    const std::size_t n_vocab = expected_.size() / n_rows;
    EXPECT_GE(logits.size(), expected_.size());
    const auto last = logits.last(expected_.size());
    double largest = 0;
    for (std::size_t row = 0; row < n_rows; ++row)
      largest = std::max(
          largest, relative_error(last.subspan(row * n_vocab, n_vocab), std::span(expected_).subspan(row * n_vocab, n_vocab)));
    return largest;
  }

  const Golden golden_{GetParam().file};
  const std::vector<std::int32_t> ids_ = golden_.read<std::int32_t>("input_ids");
  const std::vector<std::int32_t> positions_ = golden_.read<std::int32_t>("positions");  ///< the last ones of ids_
  const std::vector<float> expected_ = golden_.read<float>("logits");
};

// float32 weights, cache and arithmetic, compared with Transformers in float32 row by row.
TEST_P(DecoderGolden, logits_equal_those_of_transformers_in_float32) {
  GoldenModel model = load(DType::f32);
  const auto n_first = static_cast<std::int32_t>(ids_.size() - positions_.size());
  if (n_first > 0) model.run(std::span(ids_).first(static_cast<std::size_t>(n_first)), 0, false, nullptr);
  const auto rest = std::span(ids_).last(positions_.size());
  EXPECT_LE(row_error(model.run(rest, n_first, true, nullptr)), 1e-4) << "rows with logits in one step";

  // The same rows in three steps: 11 tokens, 1, the rest.
  std::vector<float> parts;
  for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 11}, {11, 12}, {12, rest.size()}}) {
    const auto part = model.run(rest.subspan(begin, end - begin), n_first + static_cast<std::int32_t>(begin), true, nullptr);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_LE(row_error(parts), 1e-4) << "rows with logits in three steps";
}

TEST_P(DecoderGolden, greedy_generations_equal_those_of_transformers) {
  GoldenModel model = load(DType::f32);
  const auto expected = golden_.read<std::int32_t>("greedy_ids");
  EXPECT_EQ(expected.size(), 64u);
  EXPECT_EQ(model.generate(ids_, expected.size()), expected);
}

TEST_P(DecoderGolden, bf16_stays_near_float32) {
  for (const std::string& device : devices_with_bf16()) {
    GoldenModel model = load(DType::bf16, device);
    const auto n_first = static_cast<std::int32_t>(ids_.size() - positions_.size());
    if (n_first > 0) model.run(std::span(ids_).first(static_cast<std::size_t>(n_first)), 0, false, nullptr);
    const double error = row_error(model.run(std::span(ids_).last(positions_.size()), n_first, true, nullptr));
    EXPECT_LE(error, has_rounded_weights() ? kBf16RoundedWeightsBound : kBf16Bound);
    EXPECT_GT(error, 1e-5) << "bf16 that equals float32 was not computed in bf16";
    testing::say_once(device + ", " + GetParam().name + ": relative error " + std::to_string(error));
  }
}

// f16 carries three bits more than bf16.
TEST_P(DecoderGolden, f16_stays_near_float32) {
  for (const std::string& device : testing::devices_with_f16()) {
    GoldenModel model = load(DType::f16, device);
    const auto n_first = static_cast<std::int32_t>(ids_.size() - positions_.size());
    if (n_first > 0) model.run(std::span(ids_).first(static_cast<std::size_t>(n_first)), 0, false, nullptr);
    const double error = row_error(model.run(std::span(ids_).last(positions_.size()), n_first, true, nullptr));
    EXPECT_LE(error, kBf16Bound / 4);
    EXPECT_GT(error, 1e-6) << "f16 that equals float32 was not computed in f16";
    testing::say_once(device + ", " + GetParam().name + " in f16: relative error " + std::to_string(error));
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, DecoderGolden, ::testing::ValuesIn(testing::golden_cases()),
                         [](const auto& of) { return of.param.name; });

/// The trained model with a catalogue of about 1,840 tokens: logits within `bound` of those of Transformers in
/// float32, and the same greedy tokens. The golden has the last positions of each prompt.
void expect_the_demo_golden(const std::string& device, DType dtype, double bound) {
  const fs::path source = test::source_folder();
  GoldenModel model(source / "models/demo", dtype, {.device = device});
  const Golden golden(source / "tests/goldens/demo/golden.safetensors");
  for (const int n : {0, 4, 8}) {
    SCOPED_TRACE(n);
    const auto name = [&](const char* what) { return std::to_string(n) + "." + what; };
    const auto ids = golden.read<std::int32_t>(name("input_ids"));
    const auto positions = golden.read<std::int32_t>(name("positions"));
    const auto expected = golden.read<float>(name("logits"));
    // Everything but the last tokens in one step, then the rest with logits of every row.
    const auto n_last = std::min<std::size_t>(GoldenModel::kMaxSamples, ids.size() - 1);
    const auto n_before = static_cast<std::int32_t>(ids.size() - n_last);
    model.run(std::span(ids).first(static_cast<std::size_t>(n_before)), 0, false, nullptr);
    const auto last = model.run(std::span(ids).last(n_last), n_before, true, nullptr);
    const std::size_t n_vocab = last.size() / n_last;
    int n_compared = 0;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      if (positions[i] < n_before) continue;
      const auto row = static_cast<std::size_t>(positions[i] - n_before);
      EXPECT_LE(
          relative_error(std::span(last).subspan(row * n_vocab, n_vocab), std::span(expected).subspan(i * n_vocab, n_vocab)),
          bound)
          << "position " << positions[i];
      ++n_compared;
    }
    EXPECT_GE(n_compared, 1);

    const auto greedy = golden.read<std::int32_t>(name("greedy_ids"));
    EXPECT_EQ(model.generate(ids, greedy.size()), greedy);
  }
}

TEST(Decoder, the_demo_model_equals_transformers_in_float32) { expect_the_demo_golden("cpu", DType::f32, 1e-4); }

TEST(Decoder, the_demo_model_gives_the_tokens_of_float32_in_bf16) {
  for (const std::string& device : devices_with_bf16()) {
    SCOPED_TRACE(device);
    expect_the_demo_golden(device, DType::bf16, kBf16RoundedWeightsBound);
  }
}

}  // namespace
}  // namespace baton
