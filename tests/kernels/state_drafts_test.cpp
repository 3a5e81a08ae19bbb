/// Drafts in recurrent layers, on every backend that has them: outputs and states have the bits of a decode token by token, however
/// many drafts each step verifies and accepts.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/on_device.h"
#include "support/recording_backend.h"
#include "support/state_runs.h"

namespace baton::testing {
namespace {

enum class Matrices { none, delta, mamba2 };

struct DraftCase {
  Matrices matrices = Matrices::delta;
  std::int32_t n_heads = 4;
  std::int32_t key_dim = 128;
  std::int32_t value_dim = 128;
  DType dtype = DType::bf16;  ///< of what enters and leaves the convolution
  std::int32_t conv_len = 3;
  DType state_dtype = DType::f32;

  std::int32_t n_channels() const {
    if (matrices == Matrices::none) return 48;
    return 2 * 2 * key_dim + n_heads * value_dim;  // two heads of keys, or two groups
  }
  StateShape shape() const {
    return {.n_layers = 2,
            .n_slots = 4,
            .n_channels = n_channels(),
            .conv_len = conv_len,
            .n_heads = matrices == Matrices::none ? 0 : n_heads,
            .key_dim = key_dim,
            .value_dim = value_dim,
            .matrix_dtype = state_dtype,
            .n_kept_rows = 4 * kMaxDraftTokens};
  }
  std::string name() const {
    const char* const kinds[] = {"short convolution", "delta rule", "Mamba-2"};
    return std::string(kinds[static_cast<int>(matrices)]) + ", " + std::to_string(n_heads) + " heads of " +
           std::to_string(key_dim) + " x " + std::to_string(value_dim) + ", " + std::string(to_string(dtype)) + ", states " +
           std::string(to_string(state_dtype));
  }
};

/// The recurrent operations of a layer over chosen rows of its inputs.
class DraftLayer {
 public:
  DraftLayer(Backend& backend, const DraftCase& of, std::int64_t n_rows)
      : backend_(backend),
        of_(of),
        is_gated_(of.matrices == Matrices::none),
        x_(drawn(of.dtype, {n_rows, is_gated_ ? 3 * of.n_channels() : of.n_channels()})),
        gates_(drawn(of.matrices == Matrices::delta ? DType::f32 : of.dtype, {n_rows, 2 * of.n_heads})),
        weight_(backend, drawn(DType::f32, {of.n_channels(), of.conv_len + 1})),
        a_log_(backend, drawn(DType::f32, {of.n_heads})),
        dt_bias_(backend, drawn(DType::f32, {of.n_heads})),
        skip_(backend, drawn(DType::f32, {of.n_heads})) {}

  /// The outputs of the rows of a step, each of them.
  std::vector<std::vector<std::byte>> run(StateRuns& steps, const std::vector<StateRun>& runs,
                                          const std::vector<std::int64_t>& rows) {
    const auto n = static_cast<std::int64_t>(rows.size());
    steps.start(backend_, runs, static_cast<std::int32_t>(n));
    const OnDevice x(backend_, gathered(x_, rows)), gates(backend_, gathered(gates_, rows));
    const OnDevice conv(backend_, HostTensor(of_.dtype, {n, of_.n_channels()}));
    const ConvKind kind = is_gated_ ? ConvKind::gated : ConvKind::silu;
    short_conv(backend_, {.state = steps.args(1), .x = x.view(), .weight = weight_.view(), .out = conv.view(), .kind = kind});
    if (is_gated_) return rows_of(conv.to_host());
    const OnDevice out(backend_, HostTensor(of_.dtype, {n, of_.n_heads, of_.value_dim}));
    if (of_.matrices == Matrices::delta)
      gated_delta_rule(backend_, {steps.args(1), conv.view(), 2, gates.view(), a_log_.view(), dt_bias_.view(), out.view()});
    else
      mamba2_scan(backend_, {steps.args(1), conv.view(), 2, gates.view(), of_.n_heads, a_log_.view(), dt_bias_.view(),
                             skip_.view(), out.view()});
    return rows_of(out.to_host());
  }

 private:
  HostTensor drawn(DType dtype, Shape shape) { return random_tensor(random_, dtype, shape); }
  static HostTensor gathered(const HostTensor& from, const std::vector<std::int64_t>& rows) {
    HostTensor to(from.dtype, {static_cast<std::int64_t>(rows.size()), from.shape[1]});
    const std::size_t n_bytes = from.bytes.size() / static_cast<std::size_t>(from.shape[0]);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(to.bytes.data() + i * n_bytes, from.bytes.data() + static_cast<std::size_t>(rows[i]) * n_bytes, n_bytes);
    return to;
  }
  static std::vector<std::vector<std::byte>> rows_of(const HostTensor& out) {
    std::vector<std::vector<std::byte>> rows;
    const auto n_bytes = static_cast<std::ptrdiff_t>(out.bytes.size()) / out.shape[0];
    for (std::ptrdiff_t at = 0; at < std::ssize(out.bytes); at += n_bytes)
      rows.emplace_back(out.bytes.begin() + at, out.bytes.begin() + at + n_bytes);
    return rows;
  }

  Backend& backend_;
  DraftCase of_;
  std::mt19937 random_{11};
  bool is_gated_;
  HostTensor x_, gates_;
  OnDevice weight_, a_log_, dt_bias_, skip_;
};

struct Verified {
  std::int32_t n_drafts = 0;
  std::int32_t n_accepted = 0;
};

/// A sequence that decodes with drafts. Its tokens are rows [first, ...) of the inputs; rejected drafts have inputs of others.
struct DraftingSequence {
  std::int32_t slot;
  std::int64_t first;
  std::vector<Verified> steps;
  std::int32_t position = 0;
  std::int32_t n_accepted = 0;  ///< drafts of the step before
  std::int32_t first_kept = 0;  ///< of these
};

constexpr std::int64_t kDraftRows = 200;  ///< inputs of a sequence; the last kMaxDraftTokens of each are of rejected drafts

/// The outputs of one sequence's first `n` tokens, and the slots that it left after each of them.
struct PlainDecode {
  std::vector<std::vector<std::byte>> outputs;
  std::vector<HostTensor> slots;
};
PlainDecode decode_plainly(Backend& backend, DraftLayer& layer, const StateShape& shape, std::int64_t first, std::int32_t n) {
  StateRuns steps(backend, shape, {});
  PlainDecode decode;
  for (std::int32_t i = 0; i < n; ++i) {
    const StateRun run{.n_rows = 1, .position = i, .read_slot = i == 0 ? StateRun::kZeroState : 0, .write_slot = 0};
    decode.outputs.push_back(layer.run(steps, {run}, {first + i}).front());
    decode.slots.push_back(steps.slot(0));
  }
  return decode;
}

/// Bytes of layer 1, which the operations had.
void expect_layer(const HostTensor& got, const HostTensor& expected) {
  const std::size_t half = got.bytes.size() / 2;
  EXPECT_EQ(std::memcmp(got.bytes.data() + half, expected.bytes.data() + half, half), 0);
}

void expect_plain_bits(Backend& backend, const DraftCase& of) {
  const StateShape shape = of.shape();
  DraftLayer layer(backend, of, 2 * kDraftRows);
  DraftingSequence sequences[] = {
      {0, 0, {{0, 0}, {4, 4}, {3, 0}, {16, 16}, {16, 3}, {1, 1}, {5, 2}, {0, 0}, {16, 15}, {2, 2}, {0, 0}}},
      {1, kDraftRows, {{2, 1}, {0, 0}, {0, 0}, {4, 1}, {16, 16}, {16, 16}, {3, 3}, {1, 0}, {8, 8}, {0, 0}, {0, 0}}}};
  std::vector<PlainDecode> plain;
  for (const DraftingSequence& sequence : sequences) {
    std::int32_t n_tokens = 0;
    for (const Verified& step : sequence.steps) n_tokens += 1 + step.n_accepted;
    plain.push_back(decode_plainly(backend, layer, shape, sequence.first, n_tokens));
  }
  StateRuns steps(backend, shape, {});
  for (std::size_t s = 0; s < sequences[0].steps.size(); ++s) {
    std::vector<StateRun> runs;
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < std::size(sequences); ++i) {
      DraftingSequence& sequence = sequences[i];
      const Verified& step = sequence.steps[s];
      // Every third step leaves the slot that it read to others.
      const std::int32_t read = sequence.position == 0 ? StateRun::kZeroState : sequence.slot;
      if (s % 3 == 2) sequence.slot ^= 2;
      runs.push_back({.first_row = static_cast<std::int32_t>(rows.size()),
                      .n_rows = 1 + step.n_drafts,
                      .position = sequence.position,
                      .read_slot = read,
                      .write_slot = sequence.slot,
                      .n_replayed = sequence.n_accepted,
                      .first_replayed = sequence.first_kept,
                      .n_drafts = step.n_drafts,
                      .first_kept = static_cast<std::int32_t>(2 * i + s % 2) * kMaxDraftTokens});
      for (std::int32_t row = 0; row <= step.n_drafts; ++row)
        rows.push_back(sequence.first + (row <= step.n_accepted ? sequence.position + row : kDraftRows - row));
    }
    const std::vector<std::vector<std::byte>> outputs = layer.run(steps, runs, rows);
    for (std::size_t i = 0; i < std::size(sequences); ++i) {
      DraftingSequence& sequence = sequences[i];
      const StateRun& run = runs[i];
      SCOPED_TRACE("step " + std::to_string(s) + ", sequence " + std::to_string(i));
      for (std::int32_t row = 0; row <= sequence.steps[s].n_accepted; ++row)
        EXPECT_EQ(outputs[static_cast<std::size_t>(run.first_row + row)],
                  plain[i].outputs[static_cast<std::size_t>(sequence.position + row)])
            << "row " << row;
      expect_layer(steps.slot(run.write_slot), plain[i].slots[static_cast<std::size_t>(sequence.position)]);
      if (run.read_slot >= 0 && run.read_slot != run.write_slot)  // a snapshot: without the accepted drafts
        expect_layer(steps.slot(run.read_slot),
                     plain[i].slots[static_cast<std::size_t>(sequence.position - 1 - run.n_replayed)]);
      sequence.position += 1 + sequence.steps[s].n_accepted;
      sequence.n_accepted = sequence.steps[s].n_accepted;
      sequence.first_kept = run.first_kept;
    }
  }
}

TEST(StateDrafts, rows_and_states_have_the_bits_of_a_decode_without_drafts) {
  using enum Matrices;
  for (const TestBackend& test : recurrent_backends())
    for (const DraftCase& of :
         {DraftCase{}, DraftCase{delta, 6, 32, 48, DType::f32}, DraftCase{delta, 2, 256, 64, DType::f16},
          DraftCase{delta, 2, 16, 16, DType::bf16, 1}, DraftCase{.matrices = delta, .state_dtype = DType::bf16},
          DraftCase{mamba2}, DraftCase{.matrices = mamba2, .key_dim = 16, .state_dtype = DType::bf16},
          DraftCase{.matrices = mamba2, .value_dim = 64, .state_dtype = DType::bf16}, DraftCase{mamba2, 6, 16, 64, DType::f32},
          DraftCase{none, 1, 16, 16, DType::bf16, 2}, DraftCase{none, 1, 16, 16, DType::f32, 7}}) {
      const BackendCapabilities capabilities = test.backend.capabilities();
      if (of.matrices == mamba2 && !capabilities.has_mamba2) continue;
      if (of.matrices == none && !capabilities.has_gated_conv) continue;
      SCOPED_TRACE(test.name + ", " + of.name());
      expect_plain_bits(test.backend, of);
    }
}

TEST(StateDrafts, a_kept_row_has_inputs_outputs_and_gates_and_no_slot_has_them) {
  const DraftCase of{Matrices::delta, 2, 16, 16, DType::bf16};
  StateShape shape = of.shape();
  const std::int64_t n_channels = 2 * 2 * 16 + 2 * 16;
  EXPECT_EQ(shape.kept_row_bytes(), 2 * 4 * (2 * n_channels + 16));
  EXPECT_EQ(shape.storage_bytes(), 4 * shape.slot_bytes() + 64 * shape.kept_row_bytes());
  shape.n_heads = 0;
  EXPECT_EQ(shape.kept_row_bytes(), 2 * 4 * n_channels);
}

TEST(StateDraftsDeathTest, refuses_matrices_of_other_rows_than_the_convolution_has_kept) {
  test::RecordingBackend backend;
  const DraftCase of{Matrices::delta, 2, 16, 16, DType::f32};
  const StepInput step = step_of_rows(1);
  StateShape shape = of.shape();
  shape.n_channels += 16;
  NoStates states(shape);
  const HostTensor rows(DType::f32, {1, of.n_channels()}), gates(DType::f32, {1, 4}), of_heads(DType::f32, {2});
  HostTensor out(DType::f32, {1, 2, 16});
  const StateArgs state{step.view(), 0, &states};
  EXPECT_DEATH(gated_delta_rule(backend, {state, rows.view(), 2, gates.view(), of_heads.view(), of_heads.view(), out.view()}),
               "gated_delta_rule: drafts cannot be kept");
  EXPECT_DEATH(mamba2_scan(backend, {state, rows.view(), 2, gates.view(), 0, of_heads.view(), of_heads.view(), of_heads.view(),
                                     out.view()}),
               "mamba2_scan: drafts cannot be kept");
}

}  // namespace
}  // namespace baton::testing
