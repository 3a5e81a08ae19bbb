/// All operations but attention, RoPE, matmuls, norms, activations, logits and sampling: embedding, gathered rows,
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

constexpr DType kCopiedTypes[] = {DType::f32, DType::bf16, DType::f16};

TEST(Embedding, copies_the_rows_of_the_table_and_scales_them) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(4);
    for (const DType dtype : kCopiedTypes) {
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
        embedding(test.backend, {out.view(), OnDevice(test.backend, table).view(), OnDevice(test.backend, ids).view(), 55.5f});
        const HostTensor scaled = out.to_host();
        for (std::int64_t i = 0; i < 3 * d; ++i)
          EXPECT_EQ(static_cast<float>(scaled.at(i)), 55.5f * static_cast<float>(got.at(i)));
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
    EXPECT_EQ(got[2], 0) << "slot 2 begins again";
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
    all_gather(test.backend, {{x.view().data, DType::f32, {1, 4, 5}}, out.view()});
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
    EXPECT_TRUE(test.backend.allocate(1 << 20)) << "and the device continues";
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
