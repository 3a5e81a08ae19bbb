/// All operations but attention, RoPE, matmuls, activations and sampling: norms, embedding, gathered rows,
/// collectives. Also the loading of modules.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/step_builder.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::random_tensor;
using testing::relative_error;
using testing::test_backends;
using testing::TestBackend;

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};

void expect_rms_norm(Backend& backend, std::mt19937& random, DType dtype, std::int64_t rows, std::int64_t d) {
  const HostTensor before = random_tensor(random, DType::f32, {rows, d});
  const HostTensor delta = random_tensor(random, dtype, {rows, d});
  const HostTensor weight = random_tensor(random, dtype, {d});
  std::vector<double> expected;
  std::vector<double> expected_x;
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      expected_x.push_back(static_cast<float>(before.at(r * d + i) + delta.at(r * d + i)));
      squares += expected_x.back() * expected_x.back();
    }
    for (std::int64_t i = 0; i < d; ++i)
      expected.push_back(expected_x[static_cast<std::size_t>(r * d + i)] / std::sqrt(squares / static_cast<double>(d) + 1e-5) *
                         weight.at(i));
  }
  const OnDevice x(backend, before);
  const OnDevice out(backend, HostTensor(dtype, {rows, d}));
  rms_norm(backend, {x.view(), OnDevice(backend, delta).view(), OnDevice(backend, weight).view(), out.view(), 1e-5f});
  // A sum of d squares and three roundings in f32, then one rounding to the output's dtype.
  EXPECT_LE(relative_error(out.to_host(), expected), 4 * testing::epsilon(dtype))
      << to_string(dtype) << ' ' << rows << " x " << d;
  EXPECT_LE(relative_error(x.to_host(), expected_x), testing::epsilon(DType::f32));
}

TEST(RmsNorm, equals_the_formula_and_updates_the_residual_stream) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(1);
    for (const DType dtype : kFloats)
      for (const std::int64_t rows : {0, 1, 3, 17})
        for (const std::int64_t d : {1, 7, 64, 257, 2049, 8200}) expect_rms_norm(test.backend, random, dtype, rows, d);
  }
}

TEST(RmsNorm, without_a_delta_leaves_the_stream_alone) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(2);
    const HostTensor before = random_tensor(random, DType::f32, {3, 64});
    const OnDevice x(test.backend, before);
    const OnDevice weight(test.backend, random_tensor(random, DType::f32, {64}));
    const OnDevice out(test.backend, HostTensor(DType::f32, {3, 64}));
    rms_norm(test.backend, {x.view(), {}, weight.view(), out.view(), 1e-5f});
    EXPECT_EQ(x.to_host().bytes, before.bytes);
  }
}

TEST(RmsNorm, a_row_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(7);
    const HostTensor before = random_tensor(random, DType::f32, {40, 192});
    const OnDevice x(test.backend, before);
    const OnDevice weight(test.backend, random_tensor(random, DType::f32, {192}));
    const OnDevice all(test.backend, HostTensor(DType::f32, {40, 192}));
    const OnDevice one(test.backend, HostTensor(DType::f32, {1, 192}));
    rms_norm(test.backend, {x.view(), {}, weight.view(), all.view(), 1e-5f});
    rms_norm(test.backend, {x.view().rows(23, 24), {}, weight.view(), one.view(), 1e-5f});
    const HostTensor together = all.to_host();
    EXPECT_EQ(std::memcmp(one.to_host().bytes.data(), together.view().rows(23, 24).data, 192 * 4), 0);
  }
}

TEST(RmsNorm, adds_two_deltas) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(12);
    for (const DType dtype : kFloats)
      for (const std::int64_t d : {7, 64, 2049, 8200}) {
        const HostTensor before = random_tensor(random, DType::f32, {3, d});
        const HostTensor first = random_tensor(random, dtype, {3, d});
        const HostTensor second = random_tensor(random, dtype, {3, d});
        const HostTensor weight = random_tensor(random, DType::f32, {d});
        std::vector<double> expected_x;
        for (std::int64_t i = 0; i < 3 * d; ++i) expected_x.push_back(before.at(i) + first.at(i) + second.at(i));
        const OnDevice x(test.backend, before);
        const OnDevice out(test.backend, HostTensor(DType::f32, {3, d}));
        rms_norm(test.backend, {x.view(), OnDevice(test.backend, first).view(), OnDevice(test.backend, weight).view(),
                                out.view(), 1e-5f, OnDevice(test.backend, second).view()});
        EXPECT_LE(relative_error(x.to_host(), expected_x), testing::epsilon(DType::f32)) << to_string(dtype) << ' ' << d;
        std::vector<double> expected;
        for (std::int64_t r = 0; r < 3; ++r) {
          double squares = 0;
          for (std::int64_t i = 0; i < d; ++i) squares += std::pow(expected_x[static_cast<std::size_t>(r * d + i)], 2);
          for (std::int64_t i = 0; i < d; ++i)
            expected.push_back(expected_x[static_cast<std::size_t>(r * d + i)] /
                               std::sqrt(squares / static_cast<double>(d) + 1e-5) * weight.at(i));
        }
        EXPECT_LE(relative_error(out.to_host(), expected), 4 * testing::epsilon(DType::f32)) << to_string(dtype) << ' ' << d;
      }
  }
}

/// The inputs of layer_norm; the deltas and the bias are optional.
struct LayerNormCase {
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t d = 0;
  int n_deltas = 0;
  bool has_bias = false;
  float mean = 0;  ///< mean of x
};

void expect_layer_norm(Backend& backend, std::mt19937& random, const LayerNormCase& of) {
  HostTensor before = random_tensor(random, DType::f32, {of.rows, of.d});
  for (std::int64_t i = 0; i < of.rows * of.d; ++i) before.set(i, static_cast<float>(before.at(i)) + of.mean);
  const std::vector<HostTensor> deltas = {random_tensor(random, of.dtype, {of.rows, of.d}),
                                          random_tensor(random, of.dtype, {of.rows, of.d})};
  const HostTensor weight = random_tensor(random, of.dtype, {of.d});
  const HostTensor bias = random_tensor(random, of.dtype, {of.d});
  std::vector<double> expected;
  std::vector<double> expected_x;
  for (std::int64_t r = 0; r < of.rows; ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < of.d; ++i) {
      double x = before.at(r * of.d + i);
      double added = 0;
      for (int n = 0; n < of.n_deltas; ++n) added += deltas[static_cast<std::size_t>(n)].at(r * of.d + i);
      x = static_cast<float>(x + static_cast<float>(added));
      expected_x.push_back(x);
      sum += x;
    }
    const double mean = sum / static_cast<double>(of.d);
    double squares = 0;
    for (std::int64_t i = 0; i < of.d; ++i) squares += std::pow(expected_x[static_cast<std::size_t>(r * of.d + i)] - mean, 2);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(of.d) + 1e-5);
    for (std::int64_t i = 0; i < of.d; ++i)
      expected.push_back((expected_x[static_cast<std::size_t>(r * of.d + i)] - mean) * factor * weight.at(i) +
                         (of.has_bias ? bias.at(i) : 0.0));
  }
  const OnDevice x(backend, before);
  const OnDevice first(backend, deltas[0]);
  const OnDevice second(backend, deltas[1]);
  const OnDevice biases(backend, bias);
  const OnDevice out(backend, HostTensor(of.dtype, {of.rows, of.d}));
  LayerNormArgs args;
  args.x = x.view();
  if (of.n_deltas > 0) args.delta = first.view();
  if (of.n_deltas > 1) args.second_delta = second.view();
  const OnDevice weights(backend, weight);
  args.weight = weights.view();
  if (of.has_bias) args.bias = biases.view();
  args.out = out.view();
  args.eps = 1e-5f;
  layer_norm(backend, args);
  SCOPED_TRACE(std::string(to_string(of.dtype)) + ' ' + std::to_string(of.rows) + " x " + std::to_string(of.d) + ", " +
               std::to_string(of.n_deltas) + " deltas");
  // Two sums over d and a few roundings in f32, then one rounding to the output's dtype. The mean is subtracted from x
  // in f32, so the magnitude of x counts.
  const double size = std::max(1.0, static_cast<double>(std::abs(of.mean)));
  EXPECT_LE(relative_error(out.to_host(), expected),
            4 * testing::epsilon(of.dtype) + 4 * (size - 1) * testing::epsilon(DType::f32));
  EXPECT_LE(relative_error(x.to_host(), expected_x), testing::epsilon(DType::f32));
}

TEST(LayerNorm, equals_the_formula_and_updates_the_residual_stream) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(13);
    for (const DType dtype : kFloats)
      for (const std::int64_t rows : {0, 1, 3, 17})
        for (const std::int64_t d : {2, 7, 64, 257, 2049, 8200})
          expect_layer_norm(test.backend, random, {dtype, rows, d, static_cast<int>(rows % 3), rows != 3, 0});
    // A mean far above the spread: squares are summed about the mean, so only the rounding of x itself matters.
    for (const std::int64_t d : {64, 8200}) expect_layer_norm(test.backend, random, {DType::f32, 3, d, 1, true, 100});
  }
}

TEST(LayerNorm, a_row_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(14);
    const OnDevice x(test.backend, random_tensor(random, DType::f32, {40, 192}));
    const OnDevice weight(test.backend, random_tensor(random, DType::f32, {192}));
    const OnDevice bias(test.backend, random_tensor(random, DType::f32, {192}));
    const OnDevice all(test.backend, HostTensor(DType::f32, {40, 192}));
    const OnDevice one(test.backend, HostTensor(DType::f32, {1, 192}));
    layer_norm(test.backend, {x.view(), {}, weight.view(), bias.view(), all.view(), 1e-5f});
    layer_norm(test.backend, {x.view().rows(23, 24), {}, weight.view(), bias.view(), one.view(), 1e-5f});
    const HostTensor together = all.to_host();
    EXPECT_EQ(std::memcmp(one.to_host().bytes.data(), together.view().rows(23, 24).data, 192 * 4), 0);
  }
}

TEST(Embedding, copies_the_rows_of_the_table) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(4);
    for (const DType dtype : kFloats) {
      for (const std::int64_t d : {6, 8, 300}) {
        const HostTensor table = random_tensor(random, dtype, {11, d});
        HostTensor ids(DType::i32, {3});
        const std::int32_t wanted[] = {10, 0, 10};
        std::memcpy(ids.bytes.data(), wanted, sizeof(wanted));
        const OnDevice out(test.backend, HostTensor(DType::f32, {3, d}));
        embedding(test.backend, {out.view(), OnDevice(test.backend, table).view(), OnDevice(test.backend, ids).view()});
        const HostTensor got = out.to_host();
        for (std::int64_t r = 0; r < 3; ++r)
          for (std::int64_t i = 0; i < d; ++i) EXPECT_EQ(got.at(r * d + i), table.at(wanted[r] * d + i));
      }
    }
  }
}

/// A decode step of three sequences in slots 0 to 2, each after 20 tokens.
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

/// The slot table of three_rows after a step in which slots 0 and 2 ended.
HostTensor three_slots() {
  const std::vector<SlotState> slots{{.last_token = 42, .n_generated = 5, .finished = 1},
                                     {.last_token = 43},
                                     {.last_token = 44, .n_generated = 9, .finished = 1}};
  HostTensor table(DType::u8, {3, sizeof(SlotState)});
  std::memcpy(table.bytes.data(), slots.data(), table.bytes.size());
  return table;
}

TEST(ResolveRows, takes_last_tokens_from_the_table_empties_finished_rows_and_resets_slots) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    const StepInput step = three_rows();
    const OnDevice slots(test.backend, three_slots());
    const OnDevice ids(test.backend, HostTensor(DType::i32, {3}));
    const OnDevice rows(test.backend, HostTensor(DType::u8, {1, 3, sizeof(TokenRow)}));
    resolve_rows(test.backend, {test.backend.upload_step(step), slots.view(), ids.view(), rows.view()});
    const HostTensor got_ids = ids.to_host();
    const auto* got = reinterpret_cast<const std::int32_t*>(got_ids.bytes.data());
    EXPECT_EQ(got[0], 42);
    EXPECT_EQ(got[1], 7) << "a token the host knows is taken as it is";
    EXPECT_EQ(got[2], 0) << "slot 2 begins anew";
    const HostTensor got_slots = slots.to_host();
    const auto* slot = reinterpret_cast<const SlotState*>(got_slots.bytes.data());
    EXPECT_EQ(slot[2].finished, 0);
    EXPECT_EQ(slot[2].n_generated, 0);
    EXPECT_EQ(slot[0].n_generated, 5);
    const HostTensor got_rows = rows.to_host();
    const auto* resolved = reinterpret_cast<const TokenRow*>(got_rows.bytes.data());
    EXPECT_EQ(resolved[0].kv_hi, resolved[0].kv_lo) << "a finished sequence's row sees nothing";
    EXPECT_EQ(resolved[1].kv_hi, 21);
    EXPECT_EQ(resolved[2].kv_hi, 21);
  }
}

TEST(GatherRows, takes_the_rows_of_the_samples) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    const StepInput step = three_rows();
    std::mt19937 random(5);
    for (const std::int64_t d : {10, 64}) {
      const HostTensor in = random_tensor(random, DType::bf16, {3, d});
      const OnDevice out(test.backend, HostTensor(DType::bf16, {3, d}));
      gather_rows(test.backend, {test.backend.upload_step(step), OnDevice(test.backend, in).view(), out.view()});
      EXPECT_EQ(out.to_host().bytes, in.bytes);
    }
  }
}

TEST(Graphs, serve_the_steps_that_come_after_them) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;  // a CPU reads a step in the caller's memory
    SCOPED_TRACE(test.name);
    std::mt19937 random(8);
    const HostTensor in = random_tensor(random, DType::f32, {3, 64});
    const OnDevice from(test.backend, in);
    const OnDevice out(test.backend, HostTensor(DType::f32, {3, 64}));
    const StepInput first = three_rows();
    const StepView view = test.backend.upload_step(first);
    const auto graph = test.backend.capture([&] { gather_rows(test.backend, {view, from.view(), out.view()}); });
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_TRUE(std::isnan(out.to_host().at(0))) << "graph runs nothing";
    StepInput second;
    second.header() = *first.view().header;
    const std::vector<std::int32_t> moved(100, 0);  // moves the samples to another offset
    second.append(SectionKind::reset_slots, moved);
    std::vector<SamplingMetadata> samples(3);
    samples[0].row = 2;
    samples[1].row = samples[2].row = 1;
    second.append(SectionKind::samples, samples);
    second.finish();
    test.backend.upload_step(second);
    (*graph)->replay();
    const HostTensor got = out.to_host();
    for (std::int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(got.at(i), in.at(2 * 64 + i));
      EXPECT_EQ(got.at(128 + i), in.at(64 + i));
    }
  }
}

TEST(Graphs, are_replayed_and_timed_on_every_backend) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(9);
    const HostTensor gate_up = random_tensor(random, DType::f32, {2, 64});
    const OnDevice from(test.backend, gate_up);
    const OnDevice out(test.backend, HostTensor(DType::f32, {2, 32}));
    const auto graph = test.backend.capture([&] { gated_activation(test.backend, {from.view(), out.view()}); });
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_GT(test.backend.time_us([&] { (*graph)->replay(); }), 0);
    const HostTensor replayed = out.to_host();
    test.backend.copy_from_host(out.view(), HostTensor(DType::f32, {2, 32}).view());
    gated_activation(test.backend, {from.view(), out.view()});
    EXPECT_EQ(out.to_host().bytes, replayed.bytes);
  }
}

TEST(UploadStep, many_uploads_of_all_sizes_each_arrive) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;
    SCOPED_TRACE(test.name);
    for (const std::size_t n : {1, 300000, 10, 700000, 11, 12}) {
      std::vector<std::int32_t> numbers(n);
      for (std::size_t i = 0; i < n; ++i) numbers[i] = static_cast<std::int32_t>(i * 3 + n);
      StepInput step;
      step.append(SectionKind::token_ids, numbers);
      step.finish();
      const StepView view = test.backend.upload_step(step);
      std::vector<std::int32_t> got(n);
      const auto shape = Shape{static_cast<std::int64_t>(n)};
      test.backend.copy_to_host(view_of(std::span(got), shape),
                                {view.data + view.section(SectionKind::token_ids).offset, DType::i32, shape});
      EXPECT_EQ(got, numbers);
    }
  }
}

TEST(Collectives, are_the_identity_in_a_world_of_one) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(6);
    const HostTensor before = random_tensor(random, DType::f32, {4, 5});
    const OnDevice x(test.backend, before);
    all_reduce(test.backend, x.view());
    EXPECT_EQ(x.to_host().bytes, before.bytes);
    const OnDevice out(test.backend, HostTensor(DType::f32, {4, 5}));
    all_gather(test.backend, out.view(), x.view());
    EXPECT_EQ(out.to_host().bytes, before.bytes);
  }
}

TEST(Allocate, says_what_was_asked_for_and_what_is_free) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;  // a CPU may promise memory that it does not have
    const auto too_much = test.backend.allocate(std::size_t{1} << 50);
    ASSERT_FALSE(too_much);
    EXPECT_EQ(too_much.error().code, ErrorCode::out_of_memory);
    EXPECT_NE(too_much.error().message.find("1125899906842624 bytes asked for"), std::string::npos) << too_much.error().message;
    EXPECT_TRUE(test.backend.allocate(1 << 20)) << "and the device goes on";
  }
}

TEST(Allocate, memory_is_aligned_to_64_bytes) {
  for (const TestBackend& test : test_backends()) {
    const auto first = test.backend.allocate(3);
    const auto second = test.backend.allocate(5);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first->data()) % 64, 0u) << test.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second->data()) % 64, 0u) << test.name;
  }
}

TEST(MakeBackend, a_cuda_device_that_does_not_exist_is_refused_by_its_number) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;
    const auto refused = make_backend("cuda", {.device = 99});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("CUDA device 99 does not exist"), std::string::npos) << refused.error().message;
  }
}

/// A machine with a GPU may have the CUDA module only.
bool has_cpu_module() {
  const auto names = backend_names();
  return std::find(names.begin(), names.end(), "cpu") != names.end();
}

TEST(MakeBackend, says_in_a_sentence_what_is_missing) {
  const auto unknown = make_backend("tpu", {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "unknown device 'tpu'; known are cpu and cuda");
  if (!has_cpu_module()) GTEST_SKIP() << "libbaton_cpu.so is not here";
  const auto negative = make_backend("cpu", {.n_threads = -1});
  ASSERT_FALSE(negative);
  EXPECT_NE(negative.error().message.find("--threads -1"), std::string::npos);
}

TEST(MakeBackend, instruction_sets_can_be_forced_down_and_unknown_ones_are_refused) {
  if (!has_cpu_module()) GTEST_SKIP() << "libbaton_cpu.so is not here";
  setenv("BATON_CPU_ISA", "baseline", 1);
  const auto lowest = make_backend("cpu", {});
  ASSERT_TRUE(lowest) << lowest.error().message;
  EXPECT_EQ((*lowest)->info().features, "baseline");
  EXPECT_FALSE((*lowest)->capabilities().has_bf16_matmul);
  setenv("BATON_CPU_ISA", "sse9", 1);
  const auto unknown = make_backend("cpu", {});
  unsetenv("BATON_CPU_ISA");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("sse9"), std::string::npos);
}

}  // namespace
}  // namespace baton
