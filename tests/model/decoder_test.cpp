/// Whole models against Transformers: tiny Llamas and the demo model.
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

std::vector<fs::path> golden_folders() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "tests/goldens"))
    if (entry.path().filename().string().starts_with("llama_tiny_")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

// float32 weights, cache and arithmetic against Transformers in float32: the bound of the issue.
TEST(Decoder, logits_equal_those_of_transformers_in_float32) {
  const auto folders = golden_folders();
  ASSERT_GE(folders.size(), 5u);
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.filename());
    GoldenModel model(folder, DType::f32);
    const Golden golden(folder / "golden.safetensors");
    const auto ids = golden.read<std::int32_t>("input_ids");
    const auto expected = golden.read<float>("logits");
    const auto whole = model.run(ids, 0, true, nullptr);
    EXPECT_LE(relative_error(whole, expected), 1e-4) << "prefill in one step";

    // The same rows in three steps: 17 tokens, 1, the rest.
    std::vector<float> parts;
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 17}, {17, 18}, {18, ids.size()}}) {
      const auto part = model.run(std::span(ids).subspan(begin, end - begin), static_cast<std::int32_t>(begin), true, nullptr);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_LE(relative_error(parts, expected), 1e-4) << "prefill in three steps";
  }
}

TEST(Decoder, greedy_generations_equal_those_of_transformers) {
  for (const fs::path& folder : golden_folders()) {
    SCOPED_TRACE(folder.filename());
    GoldenModel model(folder, DType::f32);
    const Golden golden(folder / "golden.safetensors");
    const auto ids = golden.read<std::int32_t>("input_ids");
    const auto expected = golden.read<std::int32_t>("greedy_ids");
    EXPECT_EQ(model.generate(ids, expected.size()), expected);
  }
}

/// The trained model behind a catalogue of about 1,840 tokens: logits within `bound` of those of Transformers in
/// float32, and the same greedy tokens. The golden's positions are the last ones of each prompt.
void expect_the_demo_golden(const std::string& device, DType dtype, double bound) {
  const fs::path source = test::source_folder();
  GoldenModel model(source / "models/demo", dtype, device);
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

// bf16 weights, activations and cache carry 8 bits: a few layers of products of some hundred terms stay within 3
// percent.
constexpr double kBf16Bound = 3e-2;

TEST(Decoder, the_demo_model_gives_the_tokens_of_float32_in_bf16) {
  for (const std::string& device : devices_with_bf16()) {
    SCOPED_TRACE(device);
    expect_the_demo_golden(device, DType::bf16, kBf16Bound);
  }
}

TEST(Decoder, bf16_stays_near_float32) {
  for (const std::string& device : devices_with_bf16()) {
    for (const fs::path& folder : golden_folders()) {
      SCOPED_TRACE(device + ", " + folder.filename().string());
      GoldenModel model(folder, DType::bf16, device);
      const Golden golden(folder / "golden.safetensors");
      const auto whole = model.run(golden.read<std::int32_t>("input_ids"), 0, true, nullptr);
      const double error = relative_error(whole, golden.read<float>("logits"));
      EXPECT_LE(error, kBf16Bound);
      EXPECT_GT(error, 1e-5) << "bf16 that equals float32 was not computed in bf16";
      testing::say_once(device + ", " + folder.filename().string() + ": relative error " + std::to_string(error));
    }
  }
}

}  // namespace
}  // namespace baton
