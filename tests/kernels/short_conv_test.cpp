/// short_conv on every backend that has recurrent layers: compared with its formula in double precision, from zero and from states,
/// and its bits however a sequence is cut into steps.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/on_device.h"
#include "support/recording_backend.h"
#include "support/state_runs.h"

namespace baton::testing {
namespace {

StateShape conv_shape(std::int32_t n_channels, std::int32_t conv_len, std::int32_t n_slots = 4) {
  return {.n_layers = 2,
          .n_slots = n_slots,
          .n_channels = n_channels,
          .conv_len = conv_len,
          .n_heads = 1,
          .key_dim = 16,
          .value_dim = 16};
}

HostTensor drawn_conv_slot(const StateShape& shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  return random_tensor(random, DType::f32, {shape.slot_bytes() / 4});
}

/// Inputs of channel c as layer 1 of a slot keeps them, the oldest first.
std::vector<double> kept_inputs(const StateShape& shape, const HostTensor& slot, std::int64_t c) {
  std::vector<double> kept;
  for (std::int64_t j = 0; j < shape.conv_len; ++j) kept.push_back(slot.at(slot.shape[0] / 2 + j * shape.n_channels + c));
  return kept;
}

/// What the convolution is between.
struct ConvForm {
  ConvKind kind = ConvKind::silu;
  bool has_bias = false;
  std::int64_t first = 0;

  std::string name() const { return std::string(kind == ConvKind::gated ? "gated" : "silu") + (has_bias ? ", bias" : ""); }
};

struct ConvRows {
  ConvRows(const StateShape& shape, std::int64_t n_rows, DType dtype, std::int64_t n_more, const ConvForm& of = {})
      : form(of),
        x(dtype, {n_rows, of.first + (of.kind == ConvKind::gated ? 3 : 1) * shape.n_channels + n_more}),
        weight(DType::f32, {shape.n_channels, shape.conv_len + 1}),
        bias(DType::f32, {of.has_bias ? shape.n_channels : 0}) {
    std::mt19937 random(7);
    x = random_tensor(random, dtype, x.shape);
    weight = random_tensor(random, DType::f32, weight.shape);
    bias = random_tensor(random, DType::f32, bias.shape);
  }
  ConvForm form;
  HostTensor x, weight, bias;
};

HostTensor run_conv(Backend& backend, const ConvRows& in, const StateRuns& steps, DType out_dtype) {
  const OnDevice x(backend, in.x), weight(backend, in.weight);
  const OnDevice out(backend, HostTensor(out_dtype, {in.x.shape[0], in.weight.shape[0]}));
  const OnDevice bias(backend, in.bias);
  short_conv(backend, {steps.args(1), x.view(), weight.view(), out.view(), in.form.first,
                       in.form.has_bias ? ConstTensorView(bias.view()) : ConstTensorView{}, in.form.kind});
  return out.to_host();
}

void expect_convolution(const TestBackend& test, const StateShape& shape, const std::vector<StateRun>& runs,
                        std::int64_t n_rows, DType dtype, DType out_dtype, const ConvForm& form = {}) {
  SCOPED_TRACE(test.name + ", " + form.name() + ", " + std::to_string(shape.n_channels) + " channels, " +
               std::to_string(shape.conv_len + 1) + " taps, " + std::to_string(n_rows) + " rows in " +
               std::string(to_string(dtype)));
  const ConvRows in(shape, n_rows, dtype, 5, form);
  const bool is_gated = form.kind == ConvKind::gated;
  StateRuns steps(test.backend, shape, runs);
  for (std::int32_t slot = 0; slot < 4; ++slot) steps.set_slot(slot, drawn_conv_slot(shape, 40 + slot));
  const HostTensor got = run_conv(test.backend, in, steps, out_dtype);
  HostTensor of_runs(out_dtype, {0});
  for (const StateRun& run : runs) {
    std::vector<double> expected(static_cast<std::size_t>(run.n_rows * shape.n_channels));
    const HostTensor before = drawn_conv_slot(shape, 40 + run.read_slot);
    const HostTensor after = steps.slot(run.write_slot);
    for (std::int64_t c = 0; c < shape.n_channels; ++c) {
      std::vector<double> inputs(static_cast<std::size_t>(shape.conv_len));
      if (run.read_slot != StateRun::kZeroState) inputs = kept_inputs(shape, before, c);
      for (std::int64_t r = 0; r < run.n_rows; ++r) {
        const auto part = [&](std::int64_t place) {
          return in.x.at((run.first_row + r) * in.x.shape[1] + form.first + place * shape.n_channels + c);
        };
        // The state keeps products in f32.
        inputs.push_back(is_gated ? static_cast<float>(part(0)) * static_cast<float>(part(2)) : part(0));
        double sum = form.has_bias ? in.bias.at(c) : 0;
        for (std::int64_t j = 0; j <= shape.conv_len; ++j)
          sum += in.weight.at(c * (shape.conv_len + 1) + j) * inputs[static_cast<std::size_t>(r + j)];
        expected[static_cast<std::size_t>(r * shape.n_channels + c)] = is_gated ? sum * part(1) : sum / (1 + std::exp(-sum));
      }
      const std::vector<double> last(inputs.end() - shape.conv_len, inputs.end());
      EXPECT_EQ(kept_inputs(shape, after, c), last) << "channel " << c;
    }
    HostTensor rows(out_dtype, {run.n_rows, shape.n_channels});
    std::memcpy(rows.bytes.data(), got.view().rows(run.first_row, run.first_row + run.n_rows).data, rows.bytes.size());
    EXPECT_LE(relative_error(rows, expected), 4 * epsilon(out_dtype)) << "run at row " << run.first_row;
  }
}

TEST(ShortConv, equals_its_formula_from_zero) {
  for (const TestBackend& test : recurrent_backends())
    for (const std::int32_t n_channels : {16, 128, 144, 400})
      for (const std::int32_t n_rows : {0, 1, 2, 3, 4, 65}) {
        expect_convolution(test, conv_shape(n_channels, 3), {{.n_rows = n_rows, .write_slot = 1}}, n_rows, DType::f32,
                           DType::f32);
        expect_convolution(test, conv_shape(n_channels, 2), {{.n_rows = n_rows, .write_slot = 1}}, n_rows, DType::bf16,
                           DType::bf16);
      }
}

TEST(ShortConv, continues_states_of_the_same_and_of_other_slots) {
  for (const TestBackend& test : recurrent_backends())
    for (const std::int32_t conv_len : {1, 3, 7})
      expect_convolution(test, conv_shape(48, conv_len),
                         {{.first_row = 0, .n_rows = 1, .position = 9, .read_slot = 0, .write_slot = 0},
                          {.first_row = 1, .n_rows = 2, .position = 9, .read_slot = 1, .write_slot = 2},
                          {.first_row = 3, .n_rows = 12, .position = 0, .write_slot = 3}},
                         15, DType::f32, DType::f32);
}

TEST(ShortConv, has_a_bias_and_gates) {
  for (const auto& [form, has] :
       {std::pair{ConvForm{.has_bias = true, .first = 16}, &BackendCapabilities::has_mamba2},
        {ConvForm{.kind = ConvKind::gated}, &BackendCapabilities::has_gated_conv},
        {ConvForm{.kind = ConvKind::gated, .has_bias = true, .first = 3}, &BackendCapabilities::has_gated_conv}})
    for (const TestBackend& test : recurrent_backends(has))
      for (const std::int32_t n_channels : {16, 144})
        for (const DType dtype : {DType::f32, DType::bf16})
          expect_convolution(test, conv_shape(n_channels, 2),
                             {{.first_row = 0, .n_rows = 1, .position = 9, .read_slot = 0, .write_slot = 0},
                              {.first_row = 1, .n_rows = 5, .position = 9, .read_slot = 1, .write_slot = 2},
                              {.first_row = 6, .n_rows = 20, .position = 0, .write_slot = 3}},
                             26, dtype, dtype, form);
}

// More runs than a kernel may take at once, of one row each and with a long one among them.
TEST(ShortConv, continues_many_states) {
  constexpr std::int32_t kRuns = 100;
  for (const TestBackend& test : recurrent_backends())
    for (const std::int32_t n_of_long : {1, 50}) {
      std::vector<StateRun> runs;
      std::int32_t n_rows = 0;
      for (std::int32_t i = 0; i < kRuns; ++i) {
        runs.push_back({.first_row = n_rows,
                        .n_rows = i == 60 ? n_of_long : 1,
                        .position = 9,
                        .read_slot = i % 5 == 4 ? StateRun::kZeroState : i % 5,
                        .write_slot = 4 + i});
        n_rows += runs.back().n_rows;
      }
      expect_convolution(test, conv_shape(2688, 3, 4 + kRuns), runs, n_rows, DType::bf16, DType::bf16);
    }
}

TEST(ShortConv, leaves_rows_without_a_run_alone) {
  for (const TestBackend& test : recurrent_backends()) {
    SCOPED_TRACE(test.name);
    const StateShape shape = conv_shape(16, 3);
    const ConvRows in(shape, 8, DType::f32, 0);
    const StateRuns steps(test.backend, shape, {{.first_row = 2, .n_rows = 3, .write_slot = 1}});
    const HostTensor got = run_conv(test.backend, in, steps, DType::f32);
    for (std::int64_t i = 0; i < 8 * 16; ++i) EXPECT_EQ(std::isnan(got.at(i)), i < 32 || i >= 80) << i;
  }
}

TEST(ShortConv, rows_have_the_same_bits_wherever_their_sequence_is_cut) {
  for (const TestBackend& test : recurrent_backends()) {
    SCOPED_TRACE(test.name);
    const StateShape shape = conv_shape(144, 3);
    const ConvRows in(shape, 10, DType::f32, 0);
    StateRuns whole(test.backend, shape, {{.n_rows = 10}});
    const HostTensor expected = run_conv(test.backend, in, whole, DType::f32);
    for (std::int32_t cut = 1; cut < 10; ++cut) {
      StateRuns steps(test.backend, shape, {});
      for (const auto& [begin, end] : {std::pair{0, cut}, std::pair{cut, 10}}) {
        ConvRows part = in;
        part.x = HostTensor(DType::f32, {end - begin, 144});
        std::memcpy(part.x.bytes.data(), in.x.view().rows(begin, end).data, part.x.bytes.size());
        steps.start(test.backend, {{0, end - begin, begin, begin == 0 ? StateRun::kZeroState : 0, 0}}, end - begin);
        const HostTensor got = run_conv(test.backend, part, steps, DType::f32);
        EXPECT_EQ(std::memcmp(got.bytes.data(), expected.view().rows(begin, end).data, got.bytes.size()), 0) << cut;
      }
    }
  }
}

TEST(ShortConvDeathTest, refuses_what_does_not_fit_its_states) {
  test::RecordingBackend backend;
  const StateShape shape = conv_shape(16, 3);
  ConvRows in(shape, 3, DType::f32, 0);
  const StepInput step = step_of_rows(3);
  NoStates states(shape);
  const StateArgs state{step.view(), 0, &states};
  HostTensor out(DType::f32, {3, 16});
  HostTensor narrow(DType::f32, {3, 15});
  HostTensor taps(DType::f32, {16, 3});
  EXPECT_DEATH(short_conv(backend, {state, narrow.view(), in.weight.view(), out.view()}), "fewer columns than");
  EXPECT_DEATH(short_conv(backend, {state, in.x.view(), in.weight.view(), out.view(), 1}), "fewer columns than");
  EXPECT_DEATH(short_conv(backend, {state, in.x.view(), in.weight.view(), out.view(), 0, {}, ConvKind::gated}),
               "fewer columns than");
  EXPECT_DEATH(short_conv(backend, {state, in.x.view(), in.weight.view(), out.view(), 0, in.weight.view()}), "bias has shape");
  EXPECT_DEATH(short_conv(backend, {state, in.x.view(), taps.view(), out.view()}), "weight has shape .*3.*expected .*4");
  EXPECT_DEATH(short_conv(backend, {state, in.x.view(), in.weight.view(), narrow.view()}), "out has shape");
  EXPECT_DEATH(short_conv(backend, {state, in.x.view(), in.weight.view(), in.x.view()}), "out overlaps x");
  EXPECT_DEATH(short_conv(backend, {{step.view(), -1, &states}, in.x.view(), in.weight.view(), out.view()}),
               "the layer is not in the storage of states");
}

}  // namespace
}  // namespace baton::testing
