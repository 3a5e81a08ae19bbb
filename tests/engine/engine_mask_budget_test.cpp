/// Answers whose masks are not ready in a step's time: the same answers, later, and no other waits.
#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/grammar_vocabulary.h"

namespace baton {
namespace {

using grammar::GrammarKind;
using testing::constraint_of;
using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::random_prompt;
using testing::run_requests;

class EngineMaskBudget : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineMaskBudget, testing::engine_devices_at_each_pace(), testing::name_of_device);

/// A budget that counts the steps of the grammars, whatever the clock says.
MaskBudget steps(std::int64_t n) { return {.time = std::chrono::hours(1), .steps = n, .steps_of_turn = 16}; }

constexpr const char* kPersonSchema =
    R"({"type": "object", "properties": {"name value": {"type": "string", "maxLength": 6}, "ages": {"type": "array", "items":
        {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3}, "city name": {"enum": ["tenten", "abab"]}},
        "required": ["name value", "ages", "city name"], "additionalProperties": false})";

/// Requests with all that could go wrong where a row is computed again: several sequences, penalties, scores of the prompt,
/// drafts of demanded text and from the context, tenants, and neighbours without a mask.
std::vector<Request> mixed_requests() {
  std::vector<TokenBias> biases;
  for (const char* text : {"name", " ", "value", "city", "{\"", "\":", "ten"})
    for (const TokenId token : testing::encode(*testing::tiny_vocabulary(), text)) biases.push_back({token, 30});
  const std::vector<Constraint> constraints{
      constraint_of(GrammarKind::json_schema, kPersonSchema, /*has_drafts=*/true),
      constraint_of(GrammarKind::regex, "([a-c]|ab|[ab]{2,5}x){3,40}y?"),
      {},
      constraint_of(GrammarKind::ebnf, "root ::= \"x\" root | \"aaaa\" root \"z\" | \"y\"")};
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    // Prompts end at borders of blocks too, where a filled block must not be published before its last row has a sample.
    Request request = greedy(random_prompt(static_cast<std::uint32_t>(seed), 13 + seed % 6), 60);
    request.constraint = constraints[seed % 4];
    request.sampling.seed = seed;
    request.sampling.temperature = seed % 3 == 0 ? 0 : 1;
    request.sampling.ignore_eos = request.constraint.matcher == nullptr;
    if (seed % 4 == 0) request.sampling.logit_bias = biases;
    if (seed % 5 == 1) request.sampling.presence_penalty = 0.5F;
    if (seed % 5 == 2) request.sampling.repetition_penalty = 1.3F;
    if (seed % 5 == 3) request.n_sequences = 3;
    if (seed % 5 == 4) request.sampling.bad_words = {random_prompt(5, 2)};
    if (seed % 7 == 5) request.sampling.n_prompt_logprobs = 0;
    if (seed % 3 == 1) request.sampling.n_top_logprobs = 2;
    if (seed % 4 == 1) request.speculation = SpeculationOptions{.n_tokens = 4};
    request.tenant = {.id = static_cast<std::int32_t>(seed % 3), .weight = 1};
    requests.push_back(std::move(request));
  }
  return requests;
}

EngineOptions small(const MaskBudget& budget) {
  return {.batch_invariant = true,
          .max_num_seqs = 12,
          .max_num_batched_tokens = 60,
          .max_model_len = 200,
          .block_len = 16,
          .mask_budget = budget};
}

TEST_P(EngineMaskBudget, answers_are_the_same_whenever_their_masks_are_ready) {
  const auto plain = make_tiny_engine(small(steps(std::numeric_limits<std::int64_t>::max() / 4)), 60);
  const std::vector<Generated> expected = run_requests(*plain, mixed_requests());
  EXPECT_EQ(plain->metrics().mask_deferrals.value(), 0);
  for (const std::int64_t n : {16, 150, 1500}) {
    SCOPED_TRACE(n);
    const auto late = make_tiny_engine(small(steps(n)), 60);
    expect_same_bits(run_requests(*late, mixed_requests()), expected);
    EXPECT_GT(late->metrics().mask_deferrals.value(), 5);
    EXPECT_EQ(late->metrics().kv_blocks_used.value(), 0);
  }
}

TEST_P(EngineMaskBudget, no_other_waits_for_a_mask) {
  Request masked = greedy(random_prompt(1, 20), 30);
  masked.constraint = constraint_of(GrammarKind::regex, "[a-z]*x");
  masked.n_sequences = 6;
  masked.tenant = {.id = 1};
  Request plain = greedy(random_prompt(2, 20), 24);
  plain.tenant = {.id = 2};
  Request begins_later = plain;
  begins_later.constraint = constraint_of(GrammarKind::regex, "x");
  begins_later.constraint.begins_behind = {1};
  const auto alone = make_tiny_engine({.batch_invariant = true}, 200);
  const std::vector<Generated> expected = run_requests(*alone, {plain});

  const auto engine = make_tiny_engine({.batch_invariant = true, .mask_budget = steps(0)}, 200);
  const auto never = engine->submit(masked);
  ASSERT_TRUE(never);
  const auto answered = engine->submit(plain);
  ASSERT_TRUE(answered);
  const auto later = engine->submit(begins_later);
  ASSERT_TRUE(later);
  std::map<testing::SequenceKey, Generated> generated;
  for (int step = 0; step < 40; ++step) {
    engine->step();
    engine->check_invariants();
    testing::collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  }
  EXPECT_EQ((generated[{answered->value, 0}].tokens), expected[0].tokens);
  EXPECT_EQ((generated[{later->value, 0}].tokens), expected[0].tokens) << "it has no mask";
  EXPECT_TRUE((generated[{never->value, 0}].tokens.empty()));
  EXPECT_GE(engine->metrics().mask_deferrals.value(), 6 * 20);
  engine->cancel(*never);
  testing::run_to_end(*engine, generated);
  EXPECT_EQ((generated[{never->value, 5}].finished), FinishReason::abort) << "while its mask is being made";
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
}

TEST(EngineMaskBudgetRanks, all_ranks_drop_the_same_samples) {
  const auto plain = testing::make_tiny_engine(small({}), 60, testing::tiny_spec(), 2);
  const std::vector<Generated> expected = run_requests(*plain, mixed_requests());
  const auto late = testing::make_tiny_engine(small(steps(150)), 60, testing::tiny_spec(), 2);
  expect_same_bits(run_requests(*late, mixed_requests()), expected);
  EXPECT_GT(late->metrics().mask_deferrals.value(), 50);
  EXPECT_FALSE(late->fault());
}

}  // namespace
}  // namespace baton
