/// Answers that keep to grammars: with every option of requests, on every device, under load.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/grammar_vocabulary.h"

namespace baton {
namespace {

using grammar::GrammarKind;
using testing::accepts;
using testing::constraint_of;
using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::kEndOfText;
using testing::random_prompt;
using testing::run_requests;
using testing::text_of;

class EngineGrammar : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineGrammar, testing::engine_devices(), testing::name_of_device);

constexpr const char* kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "ages": {"type": "array", "items":
        {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3}, "ok": {"type": "boolean"}},
        "required": ["name", "ages", "ok"], "additionalProperties": false})";

/// Sampled, with log-probabilities; ends at the end of the text.
Request held_to(Constraint constraint, std::uint64_t seed, std::int32_t max_tokens = 120) {
  Request request = greedy(random_prompt(static_cast<std::uint32_t>(seed), 5 + seed % 30), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.sampling.ignore_eos = false;
  request.constraint = std::move(constraint);
  return request;
}

TEST_P(EngineGrammar, answers_are_texts_of_their_grammars) {
  const auto engine = make_tiny_engine({}, 200);
  const std::vector<Constraint> constraints{
      constraint_of(GrammarKind::json_schema, kPerson), constraint_of(GrammarKind::choice, R"(["yes", "no", "abab"])"),
      constraint_of(GrammarKind::regex, "[a-c]{3,9}(12)*"), constraint_of(GrammarKind::ebnf, "root ::= \"x\" root | \"y\"")};
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    requests.push_back(held_to(constraints[seed % 4], seed));
    if (seed % 3 == 0) requests.back().sampling.temperature = 0;
    if (seed % 5 == 0) requests.back().n_sequences = 3;
    if (seed % 4 == 1) requests.back().sampling.top_k = 2;
    if (seed % 4 == 2) requests.back().sampling.repetition_penalty = 1.2F;
  }
  const std::vector<Generated> answers = run_requests(*engine, requests);
  std::size_t at = 0;
  int n_complete = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::int32_t n = 0; n < requests[i].n_sequences; ++n, ++at) {
      const std::string text = text_of(answers[at].tokens);
      SCOPED_TRACE(text);
      if (answers[at].finished == FinishReason::stop) {
        EXPECT_TRUE(accepts(constraints[i % 4], text));
        EXPECT_EQ(answers[at].stop_id, kEndOfText);
        ++n_complete;
      } else {
        EXPECT_EQ(answers[at].finished, FinishReason::length);
        grammar::MatcherState state = constraints[i % 4].matcher->start();
        EXPECT_TRUE(constraints[i % 4].matcher->accept(state, text));
      }
    }
  }
  EXPECT_GT(n_complete, 24);
  EXPECT_EQ(engine->metrics().grammar_sequences.value(), static_cast<std::int64_t>(answers.size()));
  EXPECT_GT(engine->metrics().grammar_masks.value(), 0);
}

/// Neighbours with masks change nothing for a request without one, and the other way round.
TEST_P(EngineGrammar, answers_are_the_same_alone_and_beside_others) {
  const EngineOptions options{.batch_invariant = true, .max_num_seqs = 6, .max_num_batched_tokens = 40, .max_model_len = 200};
  const Constraint person = constraint_of(GrammarKind::json_schema, kPerson);
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    requests.push_back(held_to(seed % 2 == 0 ? person : Constraint{}, seed, 50));
    requests.back().sampling.ignore_eos = seed % 2 == 1;
    if (seed % 6 < 2) requests.back().sampling.frequency_penalty = 0.3F;
  }
  const auto crowded = make_tiny_engine(options, 18);
  const std::vector<Generated> together = run_requests(*crowded, requests);
  EXPECT_GT(crowded->metrics().num_preemptions.value(), 0) << "the load was too light to show anything";
  std::vector<Generated> alone;
  for (const Request& request : requests) alone.push_back(run_requests(*make_tiny_engine(options, 100), {request})[0]);
  expect_same_bits(together, alone);
}

/// The host reads a step's tokens while the next forward is there already, and no sequence skips a step.
TEST_P(EngineGrammar, a_mask_costs_no_step) {
  Request plain = greedy(random_prompt(3, 10), 40);
  Request masked = plain;
  masked.constraint = constraint_of(GrammarKind::regex, "[ -~]*");
  const auto of_plain = make_tiny_engine({}, 200);
  const auto of_masked = make_tiny_engine({}, 200);
  run_requests(*of_plain, {plain, plain});
  run_requests(*of_masked, {masked, plain});
  EXPECT_EQ(of_masked->metrics().steps.value(), of_plain->metrics().steps.value());
}

TEST(EngineGrammarOrder, the_next_forward_is_enqueued_before_the_masks_are_known) {
  testing::AsyncBackend* device = nullptr;
  const auto engine = testing::make_async_engine({}, 130, testing::Pace::late, testing::tiny_spec(), &device);
  device->hold();
  engine->start();
  ASSERT_TRUE(engine->submit(held_to(constraint_of(GrammarKind::regex, "(ab)*"), 1, 6)));
  std::map<testing::SequenceKey, Generated> generated;
  std::map<std::int64_t, std::uint64_t> fewest_left;  // operations in the queue while the host waits for a step
  while (!engine->is_idle()) {
    if (device->is_waited_for()) {
      std::int64_t waited_for = -1;
      for (const StepRecord& record : engine->recent_steps())
        if (record.what == StepRecord::What::run_begin) waited_for = record.step;
      const std::uint64_t n_left = device->n_enqueued() - device->n_run();
      const auto known = fewest_left.try_emplace(waited_for, n_left).first;
      known->second = std::min(known->second, n_left);
      device->let_run(1);
    }
    testing::collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  }
  ASSERT_EQ(fewest_left.size(), 6u);
  fewest_left.erase(std::prev(fewest_left.end()));  // no step follows it
  for (const auto& [step, n_left] : fewest_left)
    EXPECT_GT(n_left, 5u) << "the forward of the step after " << step << " is enqueued";
  device->release();
  testing::collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  const std::string text = text_of(generated[{0, 0}].tokens);
  EXPECT_TRUE(accepts(constraint_of(GrammarKind::regex, "(ab)*a?"), text)) << text;
}

TEST_P(EngineGrammar, a_grammar_begins_after_a_token) {
  const auto engine = make_tiny_engine({}, 200);
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    requests.push_back(held_to(constraint_of(GrammarKind::regex, "12{2,4}x"), seed, 200));
    requests.back().constraint.begins_behind = {40, 41, 42, 43};
    requests.back().sampling.bad_words = {{kEndOfText}};  // until the grammar begins
    requests.back().sampling.min_tokens = 0;
  }
  int n_begun = 0;
  for (const Generated& answer : run_requests(*engine, requests)) {
    const auto begin = std::ranges::find_if(answer.tokens, [](TokenId token) { return token >= 40 && token <= 43; });
    if (begin == answer.tokens.end()) continue;
    ++n_begun;
    const std::string text = text_of(std::span(begin + 1, answer.tokens.end()));
    EXPECT_TRUE(accepts(requests[0].constraint, text)) << text;
    EXPECT_EQ(answer.finished, FinishReason::stop) << "nothing is left: the end is a bad word";
    EXPECT_FALSE(answer.stop_id);
  }
  EXPECT_GT(n_begun, 10);
}

TEST_P(EngineGrammar, other_limits_of_an_answer_hold_as_well) {
  const auto engine = make_tiny_engine({}, 200);
  const Constraint letters = constraint_of(GrammarKind::regex, "[a-f]{2,}");
  const TokenId a = testing::encode(*testing::tiny_vocabulary(), "a")[0];
  const auto run = [&](const Request& request) { return run_requests(*engine, {request})[0]; };

  Request long_enough = held_to(letters, 1);
  long_enough.sampling.min_tokens = 60;
  long_enough.sampling.logit_bias = {{kEndOfText, 50}};
  EXPECT_EQ(run(long_enough).tokens.size(), 60u);

  Request cannot_go_on = held_to(constraint_of(GrammarKind::choice, R"(["abc"])"), 2);
  cannot_go_on.sampling.min_tokens = 50;
  const Generated ended = run(cannot_go_on);
  EXPECT_EQ(text_of(ended.tokens), "abc");
  EXPECT_EQ(ended.finished, FinishReason::stop);
  EXPECT_FALSE(ended.stop_id);

  Request ignores = held_to(letters, 3, 40);
  ignores.sampling.ignore_eos = true;
  ignores.sampling.logit_bias = {{kEndOfText, 50}};
  const Generated ignored = run(ignores);
  EXPECT_EQ(ignored.finished, FinishReason::length);
  EXPECT_EQ(std::ranges::count(ignored.tokens, kEndOfText), 0);

  Request ends_at_once = held_to(constraint_of(GrammarKind::choice, R"(["abc"])"), 4);
  ends_at_once.sampling.ignore_eos = true;
  EXPECT_EQ(run(ends_at_once).finished, FinishReason::stop) << "the text must end, and its end is ignored";

  Request stops = held_to(letters, 5);
  stops.sampling.stop_ids = {a};
  stops.sampling.logit_bias = {{a, 20}};
  const Generated stopped = run(stops);
  EXPECT_EQ(stopped.stop_id, a);
  EXPECT_TRUE(stopped.tokens.empty());

  Request only_a = held_to(letters, 6, 30);
  only_a.sampling.allowed_ids = {a, 0, 150};
  EXPECT_EQ(text_of(run(only_a).tokens), std::string(30, 'a'));

  Request forbidden = held_to(letters, 7, 60);
  forbidden.sampling.logit_bias = {{a, -std::numeric_limits<float>::infinity()}};
  forbidden.sampling.bad_words = {{a + 2, a + 3}};
  const std::string text = text_of(run(forbidden).tokens);
  EXPECT_EQ(text.find("cd"), std::string::npos) << text;

  Request nothing = held_to(letters, 8);
  nothing.sampling.allowed_ids = {0, 1};
  const Generated none = run(nothing);
  EXPECT_EQ(none.finished, FinishReason::stop);
  EXPECT_TRUE(none.tokens.empty());
}

TEST_P(EngineGrammar, a_grammar_that_cannot_continue_ends_its_own_answer_with_an_error) {
  const auto engine = make_tiny_engine({}, 200);
  Request stuck = held_to(constraint_of(GrammarKind::ebnf, "root ::= \"ab\" [\\u00e9]"), 1);
  ASSERT_TRUE(engine->submit(held_to(constraint_of(GrammarKind::choice, R"(["yes"])"), 2)));
  ASSERT_TRUE(engine->submit(stuck));
  std::vector<Event> events;
  while (engine->step()) {
    engine->check_invariants();
    for (Event& event : engine->wait_events(std::chrono::milliseconds(0))) events.push_back(std::move(event));
  }
  std::string text;
  std::shared_ptr<const Error> error;
  for (const Event& event : events) {
    if (event.request.value == 0) {
      EXPECT_EQ(event.error, nullptr);
      EXPECT_NE(event.finished, FinishReason::error);
      continue;
    }
    for (const TokenOutput& token : event.tokens) text += text_of(std::span(&token.token, 1));
    if (event.finished) {
      EXPECT_EQ(event.finished, FinishReason::error);
      error = event.error;
    }
  }
  EXPECT_EQ(text, "ab");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, ErrorCode::unsupported);
  EXPECT_EQ(engine->metrics().finished_error.value(), 1);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
}

TEST_P(EngineGrammar, a_grammar_that_cannot_continue_after_drafts_ends_the_answer_with_an_error) {
  const auto engine = make_tiny_engine({}, 200);
  Request stuck = held_to(constraint_of(GrammarKind::ebnf, "root ::= \"name: value\" [\\u00e9]", /*has_drafts=*/true), 1);
  std::vector<TokenBias> biases;
  for (const char* text : {"name", "value"}) biases.push_back({testing::encode(*testing::tiny_vocabulary(), text)[0], 50});
  stuck.sampling.logit_bias = biases;
  ASSERT_TRUE(engine->submit(stuck));
  std::vector<Event> events;
  while (engine->step())
    for (Event& event : engine->wait_events(std::chrono::milliseconds(0))) events.push_back(std::move(event));
  std::string text;
  for (const Event& event : events)
    for (const TokenOutput& token : event.tokens) text += text_of(std::span(&token.token, 1));
  EXPECT_EQ(text, "name: value");
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().finished, FinishReason::error);
  ASSERT_NE(events.back().error, nullptr);
  EXPECT_EQ(events.back().error->code, ErrorCode::unsupported);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
}

TEST_P(EngineGrammar, an_answer_can_be_cancelled_or_run_out_of_time) {
  const auto engine = make_tiny_engine({}, 200);
  const Constraint endless = constraint_of(GrammarKind::regex, "[a-z]{5000}");
  const auto cancelled = engine->submit(held_to(endless, 1, 1500));
  Request late = held_to(endless, 2, 1500);
  late.deadline = std::chrono::milliseconds(30);
  const auto out_of_time = engine->submit(late);
  ASSERT_TRUE(cancelled && out_of_time);
  for (int i = 0; i < 5; ++i) engine->step();
  engine->cancel(*cancelled);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::map<testing::SequenceKey, Generated> generated;
  testing::run_to_end(*engine, generated);
  EXPECT_EQ((generated[{cancelled->value, 0}].finished), FinishReason::abort);
  EXPECT_EQ((generated[{out_of_time->value, 0}].finished), FinishReason::deadline);
}

constexpr const char* kStructured =
    R"({"type": "object", "properties": {"name value": {"type": "string", "maxLength": 3}, "city name": {"enum": ["tenten", "abab"]},
        "value true": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}},
        "required": ["name value", "city name", "value true"], "additionalProperties": false})";

/// Requests whose text is demanded in long runs, with an encoder or without. Biases prefer the tokens of the encoder, as a
/// trained model does.
std::vector<Request> structured(bool has_drafts) {
  std::vector<TokenBias> biases;
  for (const char* text : {"name", " ", "value", "city", "true", "null", "{\"", "\":", "ten"})
    for (const TokenId token : testing::encode(*testing::tiny_vocabulary(), text)) biases.push_back({token, 30});
  const Constraint constraint = constraint_of(GrammarKind::json_schema, kStructured, has_drafts);
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    requests.push_back(held_to(constraint, seed, 100));
    requests.back().sampling.logit_bias = biases;
    if (seed % 3 == 0) requests.back().sampling.temperature = 0;
    if (seed % 4 == 1) requests.back().sampling.presence_penalty = 0.5F;
    if (seed % 4 == 2) requests.back().n_sequences = 3;
    if (seed % 5 == 3) requests.back().sampling.bad_words = {random_prompt(5, 2)};
    if (seed % 5 == 4) requests.back().constraint = {};
  }
  return requests;
}

TEST_P(EngineGrammar, drafts_of_demanded_text_change_no_token_and_save_steps) {
  const EngineOptions options{.batch_invariant = true, .max_model_len = 300};
  const auto plain = make_tiny_engine(options, 300);
  const std::vector<Generated> expected = run_requests(*plain, structured(false));
  EXPECT_EQ(plain->metrics().spec_decode_num_drafts.value(), 0);
  const auto drafting = make_tiny_engine(options, 300);
  expect_same_bits(run_requests(*drafting, structured(true)), expected);
  EXPECT_GT(drafting->metrics().spec_decode_num_accepted_tokens.value(), 20);
  EXPECT_EQ(drafting->metrics().kv_blocks_used.value(), 0);
  // Beside speculation, in a crowd that is preempted.
  const EngineOptions tight{.batch_invariant = true,
                            .max_num_seqs = 6,
                            .max_num_batched_tokens = 60,
                            .max_model_len = 200,
                            .speculation = {.n_tokens = 4, .lookup_max = 3, .lookup_min = 1}};
  const auto crowded = make_tiny_engine(tight, 13);
  expect_same_bits(run_requests(*crowded, structured(true)), expected);
  EXPECT_GT(crowded->metrics().num_preemptions.value(), 0);
}

/// One sequence on the CPU: its drafts cost no step.
TEST(EngineGrammarDrafts, fewer_steps_make_the_same_text) {
  const auto steps = [](bool has_drafts) {
    const auto engine = testing::make_tiny_engine({}, 200);
    Request request = held_to(constraint_of(GrammarKind::choice, R"(["name: value value value value"])", has_drafts), 1);
    request.sampling.temperature = 0;
    std::vector<TokenBias> biases;
    for (const char* text : {"name", "value"}) biases.push_back({testing::encode(*testing::tiny_vocabulary(), text)[0], 50});
    request.sampling.logit_bias = biases;
    EXPECT_EQ(text_of(run_requests(*engine, {request})[0].tokens), "name: value value value value");
    return engine->metrics().steps.value();
  };
  EXPECT_LT(steps(true), steps(false) - 4);
}

/// A schema of objects, lists, strings, numbers, enumerations.
std::string random_schema(std::mt19937& random, int depth) {
  const auto pick = [&](std::uint32_t n) { return random() % n; };
  switch (depth == 0 ? 2 + pick(5) : pick(7)) {
    case 0: {
      std::string properties;
      std::string required;
      for (std::uint32_t i = 0, n = 1 + pick(3); i < n; ++i) {
        const std::string name = std::string("\"") + (i == 0 ? "name" : i == 1 ? "city" : "ab") + "\"";
        properties += (i > 0 ? ", " : "") + name + ": " + random_schema(random, depth - 1);
        if (pick(2) == 0) required += (required.empty() ? "" : ", ") + name;
      }
      return R"({"type": "object", "properties": {)" + properties + R"(}, "required": [)" + required +
             R"(], "additionalProperties": false})";
    }
    case 1:
      return R"({"type": "array", "items": )" + random_schema(random, depth - 1) + R"(, "maxItems": )" +
             std::to_string(1 + pick(3)) + "}";
    case 2: return R"({"type": "string", "maxLength": 5})";
    case 3: return R"({"type": "integer", "minimum": -20, "maximum": 300})";
    case 4: return R"({"type": "boolean"})";
    case 5: return R"({"enum": ["ab", "tenten", 12, null]})";
    default: return R"({"type": "string", "pattern": "^[a-f]+-[0-9]{2}$", "maxLength": 9})";
  }
}

TEST(EngineGrammarLoad, answers_of_random_schemas_are_valid) {
  std::mt19937 random(7);
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Constraint constraint = constraint_of(GrammarKind::json_schema, random_schema(random, 3), seed % 2 == 0);
    requests.push_back(held_to(std::move(constraint), seed, 250));
    if (seed % 4 == 0) requests.back().speculation = SpeculationOptions{.n_tokens = 4, .lookup_max = 3, .lookup_min = 1};
  }
  const auto engine = testing::make_async_engine({.max_num_seqs = 24, .max_num_batched_tokens = 100, .max_model_len = 320}, 120,
                                                 testing::Pace::random);
  const std::vector<Generated> answers = run_requests(*engine, requests);
  int n_complete = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].finished != FinishReason::stop) continue;
    ++n_complete;
    const std::string text = text_of(answers[i].tokens);
    EXPECT_TRUE(accepts(requests[i].constraint, text)) << text;
  }
  EXPECT_GT(n_complete, 180);
}

}  // namespace
}  // namespace baton
