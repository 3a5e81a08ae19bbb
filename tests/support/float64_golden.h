/// The tests of a made-up family whose golden was computed by NumPy in float64 (tools/goldens/made_up.py).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/golden_model.h"

namespace baton::testing {

/// In float32 the logits, in one step and in three, are within 1e-4 of the golden's, and the greedy tokens are equal.
inline void expect_float64_golden(const std::filesystem::path& folder, std::span<const Family> families) {
  GoldenModel model(folder, DType::f32, {.families = families});
  const Golden golden(folder / "golden.safetensors");
  const auto ids = golden.read<std::int32_t>("input_ids");
  const auto expected = golden.read<float>("logits");
  // float32 in four layers; the same bound as for Llamas.
  EXPECT_LE(relative_error(model.run(ids, 0, true, nullptr), expected), 1e-4) << "prefill in one step";
  std::vector<float> parts;
  for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 17}, {17, 18}, {18, ids.size()}}) {
    const auto part = model.run(std::span(ids).subspan(begin, end - begin), static_cast<std::int32_t>(begin), true, nullptr);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_LE(relative_error(parts, expected), 1e-4) << "prefill in three steps";
  const auto greedy = golden.read<std::int32_t>("greedy_ids");
  EXPECT_EQ(model.generate(ids, greedy.size()), greedy);
}

/// In bf16, on every device that has it, the logits are within 3e-2 of the golden's and not equal to them.
inline void expect_bf16_near_float64(const std::filesystem::path& folder, std::span<const Family> families) {
  for (const std::string& device : devices_with_bf16()) {
    SCOPED_TRACE(device);
    GoldenModel model(folder, DType::bf16, {.device = device, .families = families});
    const Golden golden(folder / "golden.safetensors");
    const auto logits = model.run(golden.read<std::int32_t>("input_ids"), 0, true, nullptr);
    const double error = relative_error(logits, golden.read<float>("logits"));
    EXPECT_LE(error, 3e-2);
    EXPECT_GT(error, 1e-5) << "bf16 that equals float64 was not computed in bf16";
    say_once(device + ", " + folder.filename().string() + ": relative error " + std::to_string(error));
  }
}

}  // namespace baton::testing
