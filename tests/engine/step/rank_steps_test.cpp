/// Engines whose steps run on several ranks: the same tokens, and an end with a sentence when a rank is lost.
#include "engine/step/rank_steps.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/test_ranks.h"
#include "support/tiny_engine.h"
#include "support/wait_until.h"

namespace baton {
namespace {

/// An engine over `n_ranks` processes.
struct RankedEngine {
  explicit RankedEngine(int n_ranks, EngineOptions options = {}) {
    const ModelSpec spec = testing::tiny_spec();
    const auto make_device = testing::cpu_of_rank(options.batch_invariant);
    ranks = testing::fork_followers(n_ranks, make_device, testing::random_model(spec));
    auto backend = make_device(ranks);
    EXPECT_TRUE(backend) << backend.error().message;
    options.kv_dtype = DType::f32;
    options.ranks = ranks;
    auto made = testing::create_tiny_engine(std::move(*backend), options, 256, spec);
    EXPECT_TRUE(made) << made.error().message;
    engine = std::move(*made);
  }
  std::shared_ptr<RankGroup> ranks;
  std::unique_ptr<Engine> engine;
};

std::vector<Request> requests() {
  std::vector<Request> made;
  for (std::uint32_t i = 0; i < 6; ++i) {
    made.push_back(testing::greedy(testing::joined(testing::random_prompt(1, 40), testing::random_prompt(i, 5 + i * 7)), 12));
    made.back().sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    made.back().sampling.seed = i;
  }
  return made;
}

TEST(RankSteps, several_ranks_generate_the_tokens_of_one) {
  const auto alone = testing::run_requests(*testing::make_tiny_engine({}, 256, testing::tiny_spec(), 1), requests());
  for (const int n_ranks : {2, 4}) {
    SCOPED_TRACE(n_ranks);
    const RankedEngine ranked(n_ranks);
    EXPECT_EQ(ranked.engine->info().backend.world_size, n_ranks);
    const auto got = testing::run_requests(*ranked.engine, requests());
    ASSERT_EQ(got.size(), alone.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].tokens, alone[i].tokens);
      ASSERT_EQ(got[i].logprobs.size(), alone[i].logprobs.size());
      for (std::size_t t = 0; t < got[i].logprobs.size(); ++t) EXPECT_NEAR(got[i].logprobs[t], alone[i].logprobs[t], 1e-4);
    }
  }
}

TEST(RankSteps, a_lost_rank_ends_all_requests_with_its_sentence) {
  const RankedEngine ranked(2);
  Engine& engine = *ranked.engine;
  std::vector<RequestId> ids;
  for (Request& request : requests()) {
    request.sampling.max_tokens = 500;
    ids.push_back(engine.submit(std::move(request)).value());
  }
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine.step());
  ASSERT_EQ(engine.fault(), std::nullopt);
  const auto other = ranked.ranks->process_ids()[1];
  ::kill(static_cast<pid_t>(other), SIGKILL);
  testing::wait_until([&] { return engine.fault().has_value(); });
  while (engine.step()) engine.check_invariants();
  const std::string sentence = "rank 1 (process " + std::to_string(other) + ") was killed by signal 9 (Killed)";
  EXPECT_EQ(engine.fault(), sentence);
  std::map<RequestId, std::string> errors;
  for (const Event& event : engine.wait_events(std::chrono::milliseconds(0))) {
    if (!event.finished) continue;
    EXPECT_EQ(event.finished, FinishReason::error);
    ASSERT_NE(event.error, nullptr);
    EXPECT_EQ(event.error->code, ErrorCode::unavailable);
    errors[event.request] = event.error->message;
  }
  ASSERT_EQ(errors.size(), ids.size());
  for (const RequestId id : ids) EXPECT_EQ(errors[id], sentence);
  EXPECT_TRUE(engine.is_idle());
  const auto refused = engine.submit(requests()[0]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(refused.error().message, sentence);
}

TEST(RankSteps, a_rank_that_cannot_be_set_up_ends_the_start_with_its_error) {
  const auto ranks = testing::fork_test_ranks(2, [](const auto& joined) { joined->fail("its weights are others"); });
  auto backend = make_backend("cpu", {.n_threads = 1, .ranks = ranks});
  ASSERT_TRUE(backend) << backend.error().message;
  EngineOptions options{.kv_dtype = DType::f32, .ranks = ranks};
  const auto engine = testing::create_tiny_engine(std::move(*backend), options, 256);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().message, "rank 1: its weights are others");
}

/// Two engines, one after the other, over the same ranks, as `baton demo` makes them.
TEST(RankSteps, ranks_take_the_next_model_when_an_engine_ends) {
  const auto ranks = testing::fork_test_ranks(2, [](const std::shared_ptr<RankGroup>& joined) {
    while (const auto what = next_load(*joined).value_or(std::nullopt)) {
      if (*what == "tiny")
        testing::follow_with_model(joined, testing::cpu_of_rank(false), testing::random_model(testing::tiny_spec()));
    }
  });
  std::vector<std::vector<TokenId>> tokens;
  for (int i = 0; i < 2; ++i) {
    RankSteps(ranks).load("nothing that is followed");
    RankSteps(ranks).end();
    RankSteps(ranks).load("tiny");
    auto backend = make_backend("cpu", {.n_threads = 1, .ranks = ranks});
    ASSERT_TRUE(backend) << backend.error().message;
    EngineOptions options{.kv_dtype = DType::f32, .ranks = ranks};
    const auto engine = testing::create_tiny_engine(std::move(*backend), options, 256);
    ASSERT_TRUE(engine) << engine.error().message;
    tokens.push_back(testing::run_requests(**engine, {testing::greedy(testing::random_prompt(3, 20), 8)})[0].tokens);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(ranks->fault(), std::nullopt);
}

StepBounds small_bounds() {
  return {.max_rows = 8,
          .max_samples = 4,
          .max_partials = 16,
          .max_slots = 4,
          .max_items = 8,
          .max_pairs = 32,
          .max_workers = 4,
          .max_block_entries = 16,
          .max_list_entries = 8,
          .n_groups = 2,
          .max_positions = 100};
}

/// Three rows in two layer groups.
StepInput small_step() {
  StepInput step(2);
  step.header().step = 7;
  step.header().n_rows = 3;
  step.append(SectionKind::token_ids, std::vector<TokenId>{1, 2, 3});
  step.append(SectionKind::reset_slots, std::vector<std::int32_t>{0});
  step.append(SectionKind::samples, std::vector<SamplingMetadata>(2));
  step.append(SectionKind::token_counts, std::vector<TokenCount>(1));
  step.append(SectionKind::token_biases, std::vector<TokenBias>(2));
  step.append(SectionKind::token_bans, std::vector<TokenBan>{});
  step.append(SectionKind::allowed_ids, std::vector<TokenId>{5});
  for (int group = 0; group < 2; ++group) {
    step.append(SectionKind::rows, std::vector<TokenRow>(3), group);
    step.append(SectionKind::kv_indices, std::vector<std::int64_t>{0, 1, 2}, group);
    step.append(SectionKind::items, std::vector<AttentionItem>(2), group);
    step.append(SectionKind::block_lists, std::vector<std::int32_t>{0, 1}, group);
    step.append(SectionKind::merge_offsets, std::vector<std::int32_t>{0, 0, 1, 2}, group);
    step.append(SectionKind::merge_inputs, std::vector<std::int32_t>{0, 1}, group);
    step.append(SectionKind::pairs, std::vector<std::int32_t>{0, 1, 2}, group);
    step.append(SectionKind::worker_offsets, std::vector<std::int32_t>{0, 3}, group);
    step.group(group).n_partials = 2;
  }
  step.finish();
  return step;
}

TEST(UnpackStep, gives_the_step_that_was_packed) {
  const StepInput step = small_step();
  const auto unpacked = unpack_step(step.bytes(), small_bounds(), StepInput(2));
  ASSERT_TRUE(unpacked) << unpacked.error().message;
  EXPECT_EQ(unpacked->view().header->step, 7);
  for (const SectionInfo& info : kSections)
    for (int group = 0; group < (static_cast<std::size_t>(info.kind) < kStepKinds ? 1 : 2); ++group) {
      const auto bytes_of = [&](const StepView& view) {
        const Section& section = view.section(info.kind, group);
        return std::span(view.data + section.offset, static_cast<std::size_t>(section.count * info.element_bytes));
      };
      EXPECT_TRUE(std::ranges::equal(bytes_of(unpacked->view()), bytes_of(step.view()))) << info.name;
    }
}

/// A peer's bytes are copied first, so that sanitizers see a read beyond their end.
TEST(UnpackStep, refuses_headers_that_do_not_fit_their_bytes) {
  const StepInput step = small_step();
  const std::vector<std::byte> good(step.bytes().begin(), step.bytes().end());
  for (std::size_t n = 0; n < good.size(); ++n) {
    const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_FALSE(unpack_step(cut, small_bounds(), StepInput(2))) << n << " bytes";
  }
  int n_refused = 0;
  int n_taken = 0;
  for (std::size_t at = 0; at < sizeof(StepHeader) + 2 * sizeof(LayerGroupHeader); at += sizeof(std::int32_t)) {
    std::int32_t old = 0;
    std::memcpy(&old, good.data() + at, sizeof(old));
    for (const std::int32_t number : {-1, 0, 1, 4, 1 << 20, 1 << 30, std::numeric_limits<std::int32_t>::max(),
                                      std::numeric_limits<std::int32_t>::min(), old + 1, old - 1, old + 16, old * 2}) {
      if (number == old) continue;
      std::vector<std::byte> bytes = good;
      std::memcpy(bytes.data() + at, &number, sizeof(number));
      const auto unpacked = unpack_step(bytes, small_bounds(), StepInput(2));
      (unpacked ? n_taken : n_refused) += 1;
      EXPECT_TRUE(unpacked || unpacked.error().code == ErrorCode::invalid_data);
    }
  }
  EXPECT_GT(n_refused, 400);
  EXPECT_GT(n_taken, 50) << "the number of the step, and sections that are shorter or elsewhere";
  StepBounds bounds = small_bounds();
  bounds.max_rows = 2;
  EXPECT_FALSE(unpack_step(good, bounds, StepInput(2)));
  bounds = small_bounds();
  bounds.n_groups = 1;
  EXPECT_FALSE(unpack_step(good, bounds, StepInput(1)));
}

}  // namespace
}  // namespace baton
