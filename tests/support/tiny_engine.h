/// An engine with a small random model; requests run to their end on the test's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/weights.h"
#include "support/test_ranks.h"

namespace baton::testing {

/// Wide keys and narrow layers otherwise: attention is read and shared as in a real model, and a step is cheap.
inline ModelSpec tiny_spec() {
  auto spec = parse_model_spec(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 48,
      "num_attention_heads": 4, "head_dim": 64, "intermediate_size": 80, "vocab_size": 160,
      "max_position_embeddings": 2048, "eos_token_id": 2})",
                               "the tiny model");
  EXPECT_TRUE(spec) << spec.error().message;
  return std::move(*spec);
}

/// Three recurrent layers and one with attention.
inline ModelSpec recurrent_spec() {
  auto spec = parse_model_spec(R"({"architectures": ["Qwen3_5ForCausalLM"], "num_hidden_layers": 4, "hidden_size": 48,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 80, "vocab_size": 160,
      "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
      "max_position_embeddings": 2048, "eos_token_id": 2})",
                               "the recurrent model");
  EXPECT_TRUE(spec) << spec.error().message;
  return std::move(*spec);
}

/// Bytes of one sequence's state in it, whose matrices have this dtype.
inline std::int64_t recurrent_state_bytes(DType dtype) { return state_shape(recurrent_spec(), 1, dtype).slot_bytes(); }

/// Options of an engine whose cache has memory for `n_blocks` blocks of options.block_len tokens in each layer group.
inline EngineOptions tiny_options(EngineOptions options, std::int32_t n_blocks, const Backend& backend, const Model& model) {
  options.uses_step_times = false;  // a test does not depend on times
  options.kv_cache_bytes = 0;
  for (const KvShape& shape : model.kv_shapes(n_blocks, options.block_len, options.kv_dtype))
    options.kv_cache_bytes += backend.kv_block_bytes(shape) * n_blocks;
  return options;
}

/// f32 except for the cache, which has options.kv_dtype. For `n_blocks` see tiny_options. Returns the error of a failed allocation.
inline Result<std::unique_ptr<Engine>> create_tiny_engine(std::unique_ptr<Backend> backend, const EngineOptions& options,
                                                          std::int32_t n_blocks, const MakeRankModel& make_model) {
  BATON_TRY(std::unique_ptr<Model> model, make_model(*backend));
  const EngineOptions sized = tiny_options(options, n_blocks, *backend, *model);
  return Engine::create(sized, std::move(backend), std::move(model));
}

inline Result<std::unique_ptr<Engine>> create_tiny_engine(std::unique_ptr<Backend> backend, const EngineOptions& options,
                                                          std::int32_t n_blocks, const ModelSpec& spec = tiny_spec()) {
  return create_tiny_engine(std::move(backend), options, n_blocks, random_model(spec));
}

/// On the CPU, everything in f32. With several ranks, all but this one are processes that end with the engine.
inline std::unique_ptr<Engine> make_tiny_engine(EngineOptions options, std::int32_t n_blocks,
                                                const ModelSpec& spec = tiny_spec(), int n_ranks = n_test_ranks()) {
  const MakeRankBackend make_device = cpu_of_rank(options.batch_invariant);
  options.ranks = fork_followers(n_ranks, make_device, random_model(spec));
  auto backend = make_device(options.ranks);
  EXPECT_TRUE(backend) << backend.error().message;
  options.kv_dtype = DType::f32;
  auto engine = create_tiny_engine(std::move(*backend), options, n_blocks, spec);
  EXPECT_TRUE(engine) << engine.error().message;
  return std::move(*engine);
}

/// The results of one sequence.
struct Generated {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> top;
  std::optional<FinishReason> finished;
  std::optional<TokenId> stop_id;      ///< of the stop token
  std::optional<float> stop_logprob;   ///< the same token's
  std::vector<TokenLogprob> stop_top;  ///< the same token's
  SequenceStats stats;
  std::vector<TokenOutput> prompt_scores;
  int n_events = 0;
};
using SequenceKey = std::pair<std::int64_t, std::int32_t>;  ///< request, index

/// Appends events to the results. The test fails at an event after the last one.
inline void collect(std::vector<Event> events, std::map<SequenceKey, Generated>& generated) {
  for (Event& event : events) {
    Generated& sequence = generated[{event.request.value, event.index}];
    EXPECT_FALSE(sequence.finished) << "an event after the last one";
    for (TokenOutput& token : event.prompt_scores) {
      EXPECT_TRUE(sequence.tokens.empty()) << "a score of the prompt after a token";
      sequence.prompt_scores.push_back(std::move(token));
    }
    for (TokenOutput& token : event.tokens) {
      sequence.tokens.push_back(token.token);
      if (token.logprob) sequence.logprobs.push_back(*token.logprob);
      sequence.top.push_back(std::move(token.top_logprobs));
    }
    sequence.finished = event.finished;
    if (event.stop_token) {
      sequence.stop_id = event.stop_token->token;
      sequence.stop_logprob = event.stop_token->logprob;
      sequence.stop_top = std::move(event.stop_token->top_logprobs);
    }
    sequence.stats = event.stats;
    ++sequence.n_events;
  }
}

/// Steps until nothing is left. Calls check_invariants after every step.
inline void run_to_end(Engine& engine, std::map<SequenceKey, Generated>& generated) {
  while (engine.step()) {
    engine.check_invariants();
    collect(engine.wait_events(std::chrono::milliseconds(0)), generated);
  }
  EXPECT_TRUE(engine.is_idle());
}

/// Submits all requests at once and returns the results in order, one sequence after the other.
inline std::vector<Generated> run_requests(Engine& engine, const std::vector<Request>& requests) {
  std::map<SequenceKey, Generated> generated;
  std::vector<SequenceKey> keys;
  for (const Request& request : requests) {
    const auto id = engine.submit(request);
    EXPECT_TRUE(id) << id.error().message;
    for (std::int32_t i = 0; i < request.n_sequences; ++i) keys.push_back({id->value, i});
  }
  run_to_end(engine, generated);
  std::vector<Generated> in_order;
  for (const SequenceKey& key : keys) in_order.push_back(generated[key]);
  return in_order;
}

/// Expects the same results to the bit: tokens, log-probabilities, scores of the prompt, and how each sequence ended. `what` names the
/// run that gave them.
inline void expect_same_bits(const std::vector<Generated>& got, const std::vector<Generated>& expected,
                             const std::string& what = {}) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(what + " sequence " + std::to_string(i));
    EXPECT_EQ(got[i].tokens, expected[i].tokens);
    EXPECT_EQ(got[i].logprobs, expected[i].logprobs);
    EXPECT_EQ(got[i].finished, expected[i].finished);
    EXPECT_EQ(got[i].stop_id, expected[i].stop_id);
    ASSERT_EQ(got[i].prompt_scores.size(), expected[i].prompt_scores.size());
    for (std::size_t n = 0; n < got[i].prompt_scores.size(); ++n)
      EXPECT_EQ(got[i].prompt_scores[n].logprob, expected[i].prompt_scores[n].logprob);
  }
}

/// Tokens that depend on `seed` only; none is special.
inline std::vector<TokenId> random_prompt(std::uint32_t seed, std::size_t n) {
  std::vector<TokenId> tokens;
  std::uint32_t state = seed * 2654435761U + 12345U;
  while (tokens.size() < n) {
    state = state * 1664525U + 1013904223U;
    tokens.push_back(static_cast<TokenId>(3 + (state >> 16) % 157));
  }
  return tokens;
}

inline std::vector<TokenId> joined(std::vector<TokenId> first, const std::vector<TokenId>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Greedy, with log-probabilities, without end-of-sequence ids.
inline Request greedy(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.n_top_logprobs = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

}  // namespace baton::testing
