/// gated_delta_rule and mamba2_scan over matrices in bfloat16: the same bits as matrices in float32 that are rounded after each row.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/on_device.h"
#include "support/state_runs.h"

namespace baton::testing {
namespace {

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKeyHeads = 2;  ///< and groups of a scan
constexpr std::int64_t kKeyDim = 32;
constexpr std::int64_t kValueDim = 80;

StateShape shape_of_dtype(DType dtype) {
  return {.n_layers = 2,
          .n_slots = 3,
          .n_channels = 16,
          .conv_len = 3,
          .n_heads = kHeads,
          .key_dim = kKeyDim,
          .value_dim = kValueDim,
          .matrix_dtype = dtype};
}

/// Inputs of some rows, for one of the operations.
struct StateOp {
  StateOp(bool is_delta, std::int64_t n_rows)
      : is_delta(is_delta), rows(DType::f32, {}), gates(DType::f32, {}), a_log(DType::f32, {}), bias(DType::f32, {}) {
    std::mt19937 random(7);
    rows = random_tensor(random, DType::f32, {n_rows, kHeads * kValueDim + 2 * kKeyHeads * kKeyDim});
    gates = random_tensor(random, DType::f32, {n_rows, 2 * kHeads});
    a_log = random_tensor(random, DType::f32, {kHeads});
    for (std::int64_t h = 0; h < kHeads; ++h) a_log.set(h, a_log.at(h) - 3);  // half-lives of tens of tokens
    bias = random_tensor(random, DType::f32, {kHeads});
  }

  /// The results of rows [begin, end), which `runs` has as its step.
  std::vector<std::byte> run(Backend& backend, const StateRuns& runs, std::int64_t begin, std::int64_t end) const {
    const OnDevice in(backend, part(rows, begin, end)), of_heads(backend, part(gates, begin, end)), rate(backend, a_log),
        dt_bias(backend, bias);
    const OnDevice out(backend, HostTensor(DType::f32, {end - begin, kHeads, kValueDim}));
    if (is_delta) {
      gated_delta_rule(backend, {runs.args(1), in.view(), kKeyHeads, of_heads.view(), rate.view(), dt_bias.view(), out.view()});
    } else {
      mamba2_scan(backend, {runs.args(1), in.view(), kKeyHeads, of_heads.view(), 0, rate.view(), dt_bias.view(), rate.view(),
                            out.view()});
    }
    return out.to_host().bytes;
  }

  static HostTensor part(const HostTensor& all, std::int64_t begin, std::int64_t end) {
    HostTensor some(DType::f32, {end - begin, all.shape[1]});
    std::memcpy(some.bytes.data(), all.view().rows(begin, end).data, some.bytes.size());
    return some;
  }

  bool is_delta;
  HostTensor rows, gates, a_log, bias;
};

/// The matrices of layer 1 in a slot of f32 states.
std::span<float> matrices_in(HostTensor& slot) {
  const std::int64_t n = shape_of_dtype(DType::f32).n_matrices();
  return {reinterpret_cast<float*>(slot.bytes.data()) + slot.shape[0] - n, static_cast<std::size_t>(n)};
}

StateRun run_of(std::int64_t begin, std::int64_t end, std::int32_t read, std::int32_t write) {
  return {.n_rows = static_cast<std::int32_t>(end - begin),
          .position = static_cast<std::int32_t>(begin),
          .read_slot = begin == 0 ? StateRun::kZeroState : read,
          .write_slot = write};
}

/// Results and the last matrices of float32 states that are rounded after each row.
std::pair<std::vector<std::byte>, std::vector<std::uint16_t>> rounded_by_hand(Backend& backend, const StateOp& op,
                                                                              std::int64_t n_rows) {
  StateRuns steps(backend, shape_of_dtype(DType::f32), {});
  std::vector<std::byte> all;
  std::vector<std::uint16_t> last;
  for (std::int64_t row = 0; row < n_rows; ++row) {
    steps.start(backend, {run_of(row, row + 1, 0, 0)}, 1);
    const std::vector<std::byte> got = op.run(backend, steps, row, row + 1);
    all.insert(all.end(), got.begin(), got.end());
    HostTensor slot = steps.slot(0);
    last.clear();
    for (float& number : matrices_in(slot)) {
      const BFloat16 rounded(number);
      number = static_cast<float>(rounded);
      last.push_back(rounded.bits);
    }
    steps.set_slot(0, slot);
  }
  return {all, last};
}

/// The same of states in bfloat16, over steps that end before the given rows. Each step writes another slot than it reads.
std::pair<std::vector<std::byte>, std::vector<std::uint16_t>> stored_rounded(Backend& backend, const StateOp& op,
                                                                             const std::vector<std::int64_t>& ends) {
  StateRuns steps(backend, shape_of_dtype(DType::bf16), {});
  std::vector<std::byte> all;
  std::int64_t begin = 0;
  std::int32_t slot = 0;
  for (const std::int64_t end : ends) {
    steps.start(backend, {run_of(begin, end, slot, (slot + 1) % 3)}, static_cast<std::int32_t>(end - begin));
    const std::vector<std::byte> got = op.run(backend, steps, begin, end);
    all.insert(all.end(), got.begin(), got.end());
    begin = end;
    slot = (slot + 1) % 3;
  }
  const HostTensor contents = steps.slot(slot);
  std::vector<std::uint16_t> last(static_cast<std::size_t>(shape_of_dtype(DType::bf16).n_matrices()));
  std::memcpy(last.data(), contents.bytes.data() + contents.bytes.size() - 2 * last.size(), 2 * last.size());
  return {all, last};
}

TEST(Bf16States, are_rounded_after_each_row_wherever_their_sequence_is_cut) {
  constexpr std::int64_t n_rows = 150;
  bool has_run = false;
  for (const TestBackend& test : recurrent_backends()) {
    if (!test.backend.make_state_storage(shape_of_dtype(DType::bf16))) continue;
    const auto backend = test.make({.n_threads = 2}).value();
    for (const bool is_delta : {true, false}) {
      SCOPED_TRACE(test.name + (is_delta ? ", delta rule" : ", scan"));
      const StateOp op(is_delta, n_rows);
      const auto expected = rounded_by_hand(*backend, op, n_rows);
      std::vector<std::int64_t> each;
      for (std::int64_t row = 1; row <= n_rows; ++row) each.push_back(row);
      for (const auto& ends : {std::vector<std::int64_t>{n_rows}, {1, n_rows}, {63, 64, 130, n_rows}, {3, 19, n_rows}, each})
        EXPECT_EQ(stored_rounded(*backend, op, ends), expected) << ends.front();
      has_run = true;
    }
  }
  EXPECT_TRUE(has_run);
}

TEST(Bf16States, take_half_the_memory_of_matrices) {
  const std::int64_t n = 2 * 4 * kKeyDim * kValueDim;
  EXPECT_EQ(shape_of_dtype(DType::f32).slot_bytes() - shape_of_dtype(DType::bf16).slot_bytes(), 2 * n);
  for (const TestBackend& test : recurrent_backends()) {
    const auto made = test.backend.make_state_storage(shape_of_dtype(DType::bf16));
    if (made) continue;
    EXPECT_EQ(made.error().code, ErrorCode::unsupported);
    EXPECT_NE(made.error().message.find("not bfloat16"), std::string::npos) << made.error().message;
  }
}

}  // namespace
}  // namespace baton::testing
