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

struct StateCase {
  bool is_delta = true;
  std::int32_t key_dim = 32;
  std::int32_t value_dim = 80;
  std::int32_t n_slots = 3;

  StateShape shape(DType dtype) const {
    return {.n_layers = 2,
            .n_slots = n_slots,
            .n_channels = 16,
            .conv_len = 3,
            .n_heads = kHeads,
            .key_dim = key_dim,
            .value_dim = value_dim,
            .matrix_dtype = dtype};
  }
  std::int64_t n_matrices() const { return shape(DType::f32).n_matrices(); }
  std::string name() const {
    return (is_delta ? "delta rule, " : "scan, ") + std::to_string(key_dim) + " x " + std::to_string(value_dim);
  }
};

/// Small ones, and the shapes that a GPU has kernels of their own for.
std::vector<StateCase> state_cases() {
  return {{.is_delta = true},
          {.is_delta = false},
          {.is_delta = true, .key_dim = 128, .value_dim = 128},
          {.is_delta = false, .key_dim = 128, .value_dim = 64}};
}

/// Inputs of some rows, for one of the operations.
struct StateOp {
  StateOp(const StateCase& of, std::int64_t n_rows, DType dtype = DType::f32)
      : of(of), rows(dtype, {}), gates(DType::f32, {}), a_log(DType::f32, {}), bias(DType::f32, {}) {
    std::mt19937 random(7);
    rows = random_tensor(random, dtype, {n_rows, kHeads * of.value_dim + 2 * kKeyHeads * of.key_dim});
    gates = random_tensor(random, DType::f32, {n_rows, 2 * kHeads});
    a_log = random_tensor(random, DType::f32, {kHeads});
    for (std::int64_t h = 0; h < kHeads; ++h) a_log.set(h, a_log.at(h) - 3);  // half-lives of tens of tokens
    bias = random_tensor(random, DType::f32, {kHeads});
  }

  /// The results of rows [begin, end), which `runs` has as its step.
  std::vector<std::byte> run(Backend& backend, const StateRuns& runs, std::int64_t begin, std::int64_t end) const {
    const OnDevice in(backend, part(rows, begin, end)), of_heads(backend, part(gates, begin, end)), rate(backend, a_log),
        dt_bias(backend, bias);
    const OnDevice out(backend, HostTensor(DType::f32, {end - begin, kHeads, of.value_dim}));
    if (of.is_delta) {
      gated_delta_rule(backend, {runs.args(1), in.view(), kKeyHeads, of_heads.view(), rate.view(), dt_bias.view(), out.view()});
    } else {
      mamba2_scan(backend, {runs.args(1), in.view(), kKeyHeads, of_heads.view(), 0, rate.view(), dt_bias.view(), rate.view(),
                            out.view()});
    }
    return out.to_host().bytes;
  }

  static HostTensor part(const HostTensor& all, std::int64_t begin, std::int64_t end) {
    HostTensor some(all.dtype, {end - begin, all.shape[1]});
    std::memcpy(some.bytes.data(), all.view().rows(begin, end).data, some.bytes.size());
    return some;
  }

  StateCase of;
  HostTensor rows, gates, a_log, bias;
};

/// The matrices of layer 1 in a slot of f32 states.
std::span<float> matrices_in(HostTensor& slot, const StateCase& of) {
  const std::int64_t n = of.n_matrices();
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
  StateRuns steps(backend, op.of.shape(DType::f32), {});
  std::vector<std::byte> all;
  std::vector<std::uint16_t> last;
  for (std::int64_t row = 0; row < n_rows; ++row) {
    steps.start(backend, {run_of(row, row + 1, 0, 0)}, 1);
    const std::vector<std::byte> got = op.run(backend, steps, row, row + 1);
    all.insert(all.end(), got.begin(), got.end());
    HostTensor slot = steps.slot(0);
    last.clear();
    for (float& number : matrices_in(slot, op.of)) {
      const BFloat16 rounded(number);
      number = static_cast<float>(rounded);
      last.push_back(rounded.bits);
    }
    steps.set_slot(0, slot);
  }
  return {all, last};
}

/// The matrices of layer 1 in a slot of bf16 states.
std::vector<std::uint16_t> bf16_matrices_in(const HostTensor& slot, const StateCase& of) {
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(of.n_matrices()));
  std::memcpy(numbers.data(), slot.bytes.data() + slot.bytes.size() - 2 * numbers.size(), 2 * numbers.size());
  return numbers;
}

/// The same of states in bfloat16, over steps that end before the given rows. Each step writes another slot than it reads.
std::pair<std::vector<std::byte>, std::vector<std::uint16_t>> stored_rounded(Backend& backend, const StateOp& op,
                                                                             const std::vector<std::int64_t>& ends) {
  StateRuns steps(backend, op.of.shape(DType::bf16), {});
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
  return {all, bf16_matrices_in(steps.slot(slot), op.of)};
}

TEST(Bf16States, are_rounded_after_each_row_wherever_their_sequence_is_cut) {
  constexpr std::int64_t n_rows = 150;
  for (const TestBackend& test : recurrent_backends()) {
    const auto backend = test.make({.n_threads = 2}).value();
    for (const StateCase& of : state_cases()) {
      SCOPED_TRACE(test.name + ", " + of.name());
      const StateOp op(of, n_rows);
      const auto expected = rounded_by_hand(*backend, op, n_rows);
      std::vector<std::int64_t> each;
      for (std::int64_t row = 1; row <= n_rows; ++row) each.push_back(row);
      for (const auto& ends : {std::vector<std::int64_t>{n_rows}, {1, n_rows}, {63, 64, 130, n_rows}, {3, 19, n_rows}, each})
        EXPECT_EQ(stored_rounded(*backend, op, ends), expected) << ends.front();
    }
  }
}

/// Slots of random matrices that bf16 holds exactly, in storages of either type.
class EqualSlots {
 public:
  EqualSlots(Backend& backend, const StateCase& of)
      : in_f32(backend, of.shape(DType::f32), {}), in_bf16(backend, of.shape(DType::bf16), {}) {
    std::mt19937 random(11);
    for (std::int32_t slot = 0; slot < of.n_slots; ++slot) {
      HostTensor f32(DType::f32, {of.shape(DType::f32).slot_bytes() / 4});
      HostTensor bf16(DType::f32, {of.shape(DType::bf16).slot_bytes() / 4});
      const HostTensor drawn = random_tensor(random, DType::bf16, {of.n_matrices()});
      const std::span<float> numbers = matrices_in(f32, of);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(drawn.at(static_cast<std::int64_t>(i)));
      std::memcpy(bf16.bytes.data() + bf16.bytes.size() - drawn.bytes.size(), drawn.bytes.data(), drawn.bytes.size());
      in_f32.set_slot(slot, f32);
      in_bf16.set_slot(slot, bf16);
    }
  }

  /// Expects that a step gives the same outputs over both, and slots that differ by one rounding.
  void expect_equal_after(Backend& backend, const StateOp& op, const std::vector<StateRun>& runs, std::int32_t n_rows) {
    in_f32.start(backend, runs, n_rows);
    const std::vector<std::byte> expected = op.run(backend, in_f32, 0, n_rows);
    in_bf16.start(backend, runs, n_rows);
    EXPECT_EQ(op.run(backend, in_bf16, 0, n_rows), expected);
    for (const StateRun& run : runs) {
      HostTensor f32 = in_f32.slot(run.write_slot);
      std::vector<std::uint16_t> rounded;
      for (const float number : matrices_in(f32, op.of)) rounded.push_back(BFloat16(number).bits);
      EXPECT_EQ(bf16_matrices_in(in_bf16.slot(run.write_slot), op.of), rounded) << run.write_slot;
      if (::testing::Test::HasFailure()) return;
    }
  }

  StateRuns in_f32, in_bf16;
};

// So many that blocks of a GPU have more matrices in turn than they can hold.
TEST(Bf16States, of_many_sequences_have_the_bits_of_float32_that_is_rounded_at_the_end) {
  for (const TestBackend& test : recurrent_backends()) {
    const auto backend = test.make({.n_threads = 2}).value();
    for (StateCase of : state_cases()) {
      SCOPED_TRACE(test.name + ", " + of.name());
      const std::int32_t n_runs = test.is_cuda() ? 450 : 5;
      of.n_slots = n_runs;
      std::vector<StateRun> runs;
      for (std::int32_t i = 0; i < n_runs; ++i)
        runs.push_back(
            {.first_row = i, .n_rows = 1, .position = 9, .read_slot = (i + 1) % n_runs, .write_slot = (i + 1) % n_runs});
      EqualSlots(*backend, of).expect_equal_after(*backend, StateOp(of, n_runs), runs, n_runs);
    }
  }
}

// A GPU computes prompts of bf16 weights in chunks: a state is in float32 until the run ends.
TEST(Bf16States, of_prompts_in_chunks_are_rounded_at_the_end) {
  for (const TestBackend& test : recurrent_backends()) {
    if (!test.is_cuda()) continue;
    const auto backend = test.make({}).value();
    for (StateCase of : state_cases()) {
      if (of.key_dim != 128) continue;
      SCOPED_TRACE(test.name + ", " + of.name());
      of.n_slots = 4;
      for (const std::int32_t position : {64, 70}) {
        for (const std::int32_t n_rows : {900, 2000}) {
          if (n_rows > 1000 && !of.is_delta)
            continue;  // a longer run is cut into ranges, after each of which its state is rounded
          EqualSlots(*backend, of)
              .expect_equal_after(*backend, StateOp(of, n_rows, DType::bf16),
                                  {{.n_rows = n_rows, .position = position, .read_slot = 1, .write_slot = 2}}, n_rows);
        }
        EqualSlots(*backend, of)
            .expect_equal_after(
                *backend, StateOp(of, 400, DType::bf16),
                {{.n_rows = 40, .position = position, .read_slot = 0, .write_slot = 0},
                 {.first_row = 40, .n_rows = 360, .position = 0, .read_slot = StateRun::kZeroState, .write_slot = 3}},
                400);
      }
    }
  }
}

TEST(Bf16States, take_half_the_memory_of_matrices) {
  const StateCase of;
  EXPECT_EQ(of.shape(DType::f32).slot_bytes() - of.shape(DType::bf16).slot_bytes(), 2 * 2 * of.n_matrices());
  for (const TestBackend& test : recurrent_backends()) EXPECT_TRUE(test.backend.make_state_storage(of.shape(DType::bf16)));
}

}  // namespace
}  // namespace baton::testing
