/// The operations around attention and products: norm, activation, embedding, gathered rows, collectives, loading of modules.
#include <cmath>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/step_builder.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::random_tensor;
using testing::relative_error;

std::unique_ptr<Backend> cpu(int n_threads = 2) {
  auto made = make_backend("cpu", {.n_threads = n_threads});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};

TEST(RmsNorm, equals_the_formula_and_updates_the_residual_stream) {
  const auto backend = cpu();
  std::mt19937 random(1);
  for (const DType dtype : kFloats) {
    for (const std::int64_t rows : {0, 1, 3, 17}) {
      for (const std::int64_t d : {1, 7, 64, 257}) {
        HostTensor x = random_tensor(random, DType::f32, {rows, d});
        const HostTensor delta = random_tensor(random, dtype, {rows, d});
        const HostTensor weight = random_tensor(random, dtype, {d});
        HostTensor out(dtype, {rows, d});
        std::vector<double> expected;
        std::vector<double> expected_x;
        for (std::int64_t r = 0; r < rows; ++r) {
          double squares = 0;
          for (std::int64_t i = 0; i < d; ++i) {
            expected_x.push_back(static_cast<float>(x.at(r * d + i) + delta.at(r * d + i)));
            squares += expected_x.back() * expected_x.back();
          }
          for (std::int64_t i = 0; i < d; ++i)
            expected.push_back(expected_x[static_cast<std::size_t>(r * d + i)] /
                               std::sqrt(squares / static_cast<double>(d) + 1e-5) * weight.at(i));
        }
        rms_norm(*backend, {x.view(), delta.view(), weight.view(), out.view(), 1e-5f});
        // A sum of d squares and three roundings in f32, then one to the output's dtype.
        EXPECT_LE(relative_error(out, expected), 4 * testing::epsilon(dtype)) << to_string(dtype) << ' ' << rows << " x " << d;
        EXPECT_LE(relative_error(x, expected_x), testing::epsilon(DType::f32));
      }
    }
  }
}

TEST(RmsNorm, without_a_delta_leaves_the_stream_alone) {
  const auto backend = cpu();
  std::mt19937 random(2);
  HostTensor x = random_tensor(random, DType::f32, {3, 64});
  const HostTensor before = x;
  const HostTensor weight = random_tensor(random, DType::f32, {64});
  HostTensor out(DType::f32, {3, 64});
  rms_norm(*backend, {x.view(), {}, weight.view(), out.view(), 1e-5f});
  EXPECT_EQ(x.bytes, before.bytes);
}

TEST(SiluMul, equals_the_formula_also_for_large_arguments) {
  const auto backend = cpu();
  std::mt19937 random(3);
  for (const DType dtype : kFloats) {
    for (const std::int64_t n : {1, 15, 16, 33}) {
      HostTensor gate_up = random_tensor(random, dtype, {5, 2 * n});
      gate_up.set(0, 100.0f);
      gate_up.set(2 * n, -100.0f);
      HostTensor out(dtype, {5, n});
      std::vector<double> expected;
      for (std::int64_t r = 0; r < 5; ++r)
        for (std::int64_t i = 0; i < n; ++i) {
          const double gate = gate_up.at(r * 2 * n + i);
          expected.push_back(gate / (1 + std::exp(-gate)) * gate_up.at(r * 2 * n + n + i));
        }
      silu_mul(*backend, {gate_up.view(), out.view()});
      EXPECT_LE(relative_error(out, expected), 4 * testing::epsilon(dtype)) << to_string(dtype) << ' ' << n;
    }
  }
}

TEST(Embedding, copies_the_rows_of_the_table) {
  const auto backend = cpu();
  std::mt19937 random(4);
  for (const DType dtype : kFloats) {
    const HostTensor table = random_tensor(random, dtype, {11, 6});
    HostTensor ids(DType::i32, {3});
    const std::int32_t wanted[] = {10, 0, 10};
    std::memcpy(ids.bytes.data(), wanted, sizeof(wanted));
    HostTensor out(DType::f32, {3, 6});
    embedding(*backend, {out.view(), table.view(), ids.view()});
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(out.at(r * 6 + i), table.at(wanted[r] * 6 + i));
  }
}

/// A decode step of three sequences in slots 0 to 2 after 20 tokens each.
StepInput three_rows() {
  static const std::vector<std::vector<BlockId>> tables{
      {BlockId{0}, BlockId{1}}, {BlockId{2}, BlockId{3}}, {BlockId{4}, BlockId{5}}};
  std::vector<testing::StepSequence> sequences;
  for (std::int32_t i = 0; i < 3; ++i) {
    testing::StepSequence sequence;
    sequence.rows = {SlotId{i}, tables[static_cast<std::size_t>(i)], 21, 1};
    sequence.tokens = {i == 1 ? 7 : kLastTokenOfSlot};
    sequences.push_back(std::move(sequence));
  }
  return testing::pack_step(sequences, {.n_heads = 2, .n_kv_heads = 1, .head_dim = 8}, {}, {2});
}

TEST(ResolveRows, takes_last_tokens_from_the_table_empties_finished_rows_and_resets_slots) {
  const auto backend = cpu();
  const StepInput step = three_rows();
  std::vector<SlotState> slots{{.last_token = 42, .n_generated = 5, .finished = 1},
                               {.last_token = 43},
                               {.last_token = 44, .n_generated = 9, .finished = 1}};
  HostTensor ids(DType::i32, {3});
  HostTensor rows(DType::u8, {3, sizeof(TokenRow)});
  const TensorView row_views[] = {rows.view()};
  resolve_rows(
      *backend,
      {step.view(), {reinterpret_cast<std::byte*>(slots.data()), DType::u8, {3, sizeof(SlotState)}}, ids.view(), row_views});
  const auto* got = reinterpret_cast<const std::int32_t*>(ids.bytes.data());
  EXPECT_EQ(got[0], 42);
  EXPECT_EQ(got[1], 7) << "a token the host knows is taken as it is";
  EXPECT_EQ(got[2], 0) << "slot 2 begins anew";
  EXPECT_EQ(slots[2].finished, 0);
  EXPECT_EQ(slots[2].n_generated, 0);
  const auto* resolved = reinterpret_cast<const TokenRow*>(rows.bytes.data());
  EXPECT_EQ(resolved[0].kv_hi, resolved[0].kv_lo) << "a finished sequence's row sees nothing";
  EXPECT_EQ(resolved[1].kv_hi, 21);
  EXPECT_EQ(resolved[2].kv_hi, 21);
}

TEST(GatherRows, takes_the_rows_of_the_orders) {
  const auto backend = cpu();
  const StepInput step = three_rows();
  std::mt19937 random(5);
  const HostTensor in = random_tensor(random, DType::bf16, {3, 10});
  HostTensor out(DType::bf16, {3, 10});
  gather_rows(*backend, {step.view(), in.view(), out.view()});
  EXPECT_EQ(in.bytes, out.bytes);
}

TEST(Collectives, are_the_identity_in_a_world_of_one) {
  const auto backend = cpu();
  std::mt19937 random(6);
  HostTensor x = random_tensor(random, DType::f32, {4, 5});
  const HostTensor before = x;
  all_reduce(*backend, x.view());
  EXPECT_EQ(x.bytes, before.bytes);
  HostTensor out(DType::f32, {4, 5});
  all_gather(*backend, out.view(), x.view());
  EXPECT_EQ(out.bytes, x.bytes);
}

TEST(MakeBackend, says_in_a_sentence_what_is_missing) {
  const auto unknown = make_backend("tpu", {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "unknown device 'tpu'; known are cpu and cuda");
  const auto negative = make_backend("cpu", {.n_threads = -1});
  ASSERT_FALSE(negative);
  EXPECT_NE(negative.error().message.find("--threads -1"), std::string::npos);
}

TEST(MakeBackend, instruction_sets_can_be_forced_down_and_unknown_ones_are_refused) {
  setenv("BATON_CPU_ISA", "baseline", 1);
  const auto lowest = make_backend("cpu", {});
  ASSERT_TRUE(lowest) << lowest.error().message;
  EXPECT_EQ((*lowest)->info().features, "baseline");
  EXPECT_FALSE((*lowest)->info().has_bf16_products);
  setenv("BATON_CPU_ISA", "sse9", 1);
  const auto unknown = make_backend("cpu", {});
  unsetenv("BATON_CPU_ISA");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("sse9"), std::string::npos);
}

}  // namespace
}  // namespace baton
