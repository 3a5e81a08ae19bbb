/// Whole models compared with Transformers: tiny checkpoints and the demo model.
#include "model/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/golden_rows.h"
#include "support/source_folder.h"

namespace baton {
namespace {

using testing::Golden;
using testing::GoldenModel;
using testing::relative_error;

namespace fs = std::filesystem;

// bf16 activations and cache have 8 bits: a few layers of matmuls over some hundred terms stay within 2 percent.
constexpr double kBf16Bound = 2e-2;
// Weights that are stored with more bits than bf16 has are rounded: 1 percent more. The demo's golden is of the weights as
// stored. That of llama_tiny_gqa64 is of the rounded weights.
constexpr double kBf16RoundedWeightsBound = 3e-2;
// Latent attention rounds queries and outputs once more than the others, where the matrices of heads read and write them; experts
// in groups are chosen twice. A row is up to 3e-2 from float32, Transformers' up to 2.4e-2.
// Recurrent layers carry what they round from row to row: Transformers' rows are up to 3.9e-2 from float32.
constexpr double kBf16WideRowBound = 4e-2;
constexpr double kBf16WideBound = 3e-2;
// States that are rounded to bf16 after each row: a rounding changes a number by at most 2^-9 of it, and what a state has of earlier
// ones decays as the state does. Independent roundings of n rows, and of several layers, add up as squares. n is at most 64: these
// gates forget, so that 700 rows have 1.4 times the error of 63, 4.0e-2.
constexpr double kStateRounding = 1.0 / 512;
constexpr double kMostRoundedRows = 64;

/// A golden of a tiny checkpoint, and the same in bf16.
class DecoderGolden : public testing::GoldenRows {
 protected:
  GoldenModel load(DType dtype, const std::string& device = "cpu") const {
    return GoldenModel(GetParam().folder, dtype, {.device = device, .max_positions = max_positions()});
  }

  /// Those of these devices that load the model. A GPU that has no kernels for its attention says so, and is logged.
  std::vector<std::string> devices_that_take_it(DType dtype, std::vector<std::string> devices) const {
    if (is_latent() && std::ranges::count(devices, "cuda") > 0 &&
        make_backend("cuda", {.n_threads = 1}).value()->info().features != "sm_90") {
      std::erase(devices, "cuda");
      try {
        load(dtype, "cuda");
        ADD_FAILURE() << "a model that the device has no kernels for was loaded";
      } catch (const std::runtime_error& refusal) {
        EXPECT_TRUE(std::string(refusal.what()).ends_with("it needs compute capability 9.0")) << refusal.what();
        testing::say_once(std::string("cuda: left out: ") + refusal.what());
      }
    }
    const ModelSpec spec = read_model_spec(GetParam().folder).value();
    std::erase_if(devices, [&](const std::string& device) {
      return !kind_not_computed(spec, make_backend(device, {.n_threads = 1}).value()->capabilities()).empty();
    });
    return devices;
  }
  std::vector<std::string> devices_in_bf16() const { return devices_that_take_it(DType::bf16, testing::devices_with_bf16()); }

  /// 2 x what roundings add up to in the logits.
  double bf16_states_bound() const {
    const double n_rows = std::min(static_cast<double>(ids_.size()), kMostRoundedRows);
    return 2 * kStateRounding * std::sqrt(n_rows * read_model_spec(GetParam().folder)->n_recurrent_layers());
  }
  /// Whether states have matrices beside inputs of convolutions.
  bool has_matrices() const { return state_shape(read_model_spec(GetParam().folder).value(), 1, DType::f32).n_heads > 0; }
  bool has_recurrent_layers() const { return read_model_spec(GetParam().folder)->has_recurrent_layers(); }
  /// Whether bf16 has the wider bounds.
  bool rounds_more() const { return is_latent() || has_recurrent_layers(); }
  bool is_latent() const { return read_model_spec(GetParam().folder)->layers.front().attention.latent.has_value(); }
  bool stores_float32() const { return read_model_spec(GetParam().folder)->dtype == DType::f32; }
  /// What Transformers computes in float32 from the weights as bf16 holds them. Most checkpoints store bf16.
  std::vector<float> float32_of_bf16_weights() const {
    EXPECT_EQ(bf16_.contains("float32_logits"), stores_float32());
    return stores_float32() ? bf16_.read<float>("float32_logits") : expected_;
  }
  /// What Transformers computes in bf16: the last rows.
  std::vector<float> reference_in_bf16() const {
    std::vector<float> logits;
    for (const std::uint16_t bits : bf16_.read<std::uint16_t>("logits"))
      logits.push_back(std::bit_cast<float>(std::uint32_t{bits} << 16));
    return logits;
  }

  const Golden bf16_{GetParam().bf16_file};
};

// float32 weights, cache and arithmetic, compared with Transformers in float32 row by row.
TEST_P(DecoderGolden, logits_equal_those_of_transformers_in_float32) {
  GoldenModel model = load(DType::f32);
  EXPECT_LE(row_error(run_rows(model), expected_), 1e-4) << "rows with logits in one step";
  EXPECT_LE(row_error(run_rows_in_three(model), expected_), 1e-4) << "rows with logits in three steps";
}

// A prompt that is computed token by token, as answers are.
TEST_P(DecoderGolden, recurrent_rows_equal_those_of_transformers_token_by_token) {
  if (!has_recurrent_layers()) GTEST_SKIP() << "no recurrent layers";
  GoldenModel model = load(DType::f32);
  std::vector<float> logits;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::vector<float> row = model.run(std::span(ids_).subspan(i, 1), static_cast<std::int32_t>(i), true, nullptr);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  EXPECT_LE(row_error(logits, expected_), 1e-4);
}

TEST_P(DecoderGolden, greedy_generations_equal_those_of_transformers) {
  GoldenModel model = load(DType::f32);
  const auto expected = golden_.read<std::int32_t>("greedy_ids");
  EXPECT_EQ(expected.size(), 64u);
  EXPECT_EQ(model.generate(ids_, expected.size()), expected);
}

// Matrices of states in bf16, all else in float32: how far rounding states alone takes a row, see kStateRounding.
TEST_P(DecoderGolden, bf16_states_stay_near_float32) {
  if (!has_matrices()) GTEST_SKIP() << "no matrices of states";
  GoldenModel model(GetParam().folder, DType::f32,
                    {.max_positions = max_positions(), .batch_invariant = true, .state_dtype = DType::bf16});
  const std::vector<float> logits = run_rows(model);
  const double error = row_error(logits, expected_);
  EXPECT_LE(error, bf16_states_bound());
  if (ids_.size() > 1) {
    EXPECT_GT(error, 1e-4) << "states that equal float32 were not rounded";
  }
  testing::say_once(fmt::format("cpu, {} with bf16 states: relative error {:.5f}", GetParam().name, error));
  EXPECT_EQ(run_rows_in_three(model), logits) << "rounded after each row, wherever steps end";
}

// All in bf16, states too.
TEST_P(DecoderGolden, bf16_with_bf16_states_stays_near_float32) {
  if (!has_matrices()) GTEST_SKIP() << "no matrices of states";
  const std::vector<float> expected = float32_of_bf16_weights();
  for (const std::string& device : devices_in_bf16()) {
    GoldenModel model(GetParam().folder, DType::bf16,
                      {.device = device, .max_positions = max_positions(), .state_dtype = DType::bf16});
    const double error = row_error(run_rows(model), expected);
    EXPECT_LE(error, kBf16WideRowBound + bf16_states_bound()) << device;
    testing::say_once(fmt::format("{}, {} in bf16 with bf16 states: relative error {:.5f}", device, GetParam().name, error));
  }
}

// Weights, activations and cache in bf16, compared with Transformers in float32 from the same bf16 weights, row by row.
TEST_P(DecoderGolden, bf16_stays_near_float32) {
  const std::vector<float> expected = float32_of_bf16_weights();
  for (const std::string& device : devices_in_bf16()) {
    GoldenModel model = load(DType::bf16, device);
    const double error = row_error(run_rows(model), expected);
    EXPECT_LE(error, rounds_more() ? kBf16WideRowBound : stores_float32() ? kBf16RoundedWeightsBound : kBf16Bound) << device;
    EXPECT_GT(error, 1e-5) << device << ": bf16 that equals float32 was not computed in bf16";
    testing::say_once(device + ", " + GetParam().name + ": relative error " + std::to_string(error));
  }
}

// The same compared with Transformers in bf16: all kept rows as one vector. Single rows would need a wider bound, because
// Transformers also rounds the residual stream and the logits: a row of its own is up to 3.5e-2 from its float32.
TEST_P(DecoderGolden, bf16_stays_near_transformers_in_bf16) {
  const std::vector<float> expected = float32_of_bf16_weights();
  const std::vector<float> reference = reference_in_bf16();
  const auto same_rows = std::span(expected).last(reference.size());
  const double error_of_reference = relative_error(reference, same_rows);
  for (const std::string& device : devices_in_bf16()) {
    GoldenModel model = load(DType::bf16, device);
    const std::vector<float> logits = run_rows(model);
    const auto got = std::span(logits).last(reference.size());
    const double error = relative_error(got, reference);
    EXPECT_LE(error, rounds_more() ? kBf16WideBound : kBf16Bound) << device;
    EXPECT_LE(relative_error(got, same_rows), error_of_reference) << device << ": farther from float32 than Transformers' bf16";
    testing::say_once(
        fmt::format("{}, {}: {:.4f} from Transformers' bf16 (worst row {:.4f}), which is {:.4f} from float32 ({:.4f})", device,
                    GetParam().name, error, row_error(got, reference), error_of_reference, row_error(reference, same_rows)));
  }
}

// f16 carries three bits more than bf16.
TEST_P(DecoderGolden, f16_stays_near_float32) {
  for (const std::string& device : devices_that_take_it(DType::f16, testing::devices_with_f16())) {
    GoldenModel model = load(DType::f16, device);
    const double error = row_error(run_rows(model), expected_);
    EXPECT_LE(error, (rounds_more() ? kBf16WideBound : kBf16Bound) / 4);
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
  for (const std::string& device : testing::devices_with_bf16()) {
    SCOPED_TRACE(device);
    expect_the_demo_golden(device, DType::bf16, kBf16RoundedWeightsBound);
  }
}

}  // namespace
}  // namespace baton
