/// Random commands to an engine whose model has recurrent layers, in caches that are too small: requests that share and continue
/// conversations, draft, and keep to grammars; cancelled ones; prefixes that are registered, stored and given up; a host tier. Every
/// answer is that of an engine without a cache and drafts, and nothing is left over.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/grammar_vocabulary.h"
#include "support/long_run.h"
#include "support/mtp_model.h"
#include "support/stepped_engine.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::Pace;
using testing::random_prompt;
using testing::SequenceKey;
using testing::SteppedEngine;

constexpr std::int32_t kChaosBlockLen = 16;
constexpr std::int32_t kLongest = 160;
constexpr std::size_t kLongestPrompt = 110;

/// What all loads together did.
struct ChaosCounts {
  std::int64_t n_preempted = 0, n_cancelled = 0, n_hits = 0, n_replayed = 0, n_saved_bytes = 0, n_loaded_bytes = 0;
  std::int64_t n_ngram_drafts = 0, n_mtp_drafts = 0, n_grammar_drafts = 0, n_accepted = 0;
  std::int64_t n_registered = 0, n_refused = 0, n_stopped = 0, n_copied_out = 0, n_copied_in = 0, n_copies_failed = 0;
  std::int64_t n_snapshots_evicted = 0, n_replays = 0, n_states_overwritten = 0;
};

/// A prefix as it was copied out: a later engine of the same model may take it in.
struct StoredPrefix {
  std::vector<TokenId> tokens;
  CacheScope scope;
  std::vector<std::vector<std::byte>> pieces;
};

class Chaos {
 public:
  Chaos(std::uint32_t seed, ModelSpec spec, ChaosCounts& counts, std::vector<StoredPrefix>& stored)
      : rng_(seed),
        spec_(std::move(spec)),
        counts_(counts),
        stored_(stored),
        options_(any_options()),
        n_blocks_(between(12, 40)) {
    const std::optional<Pace> pace =
        std::array<std::optional<Pace>, 5>{Pace::late, Pace::at_once, Pace::random, Pace::random, std::nullopt}[rng_() % 5];
    engine_ = std::make_unique<SteppedEngine>(options_, n_blocks_, pace, seed, spec_);
  }

  void run(std::size_t n_requests) {
    for (std::size_t n_steps = 0; requests_.size() < n_requests || !engine_->is_idle(); ++n_steps) {
      command(requests_.size() < n_requests);
      engine_->step();
      ASSERT_LT(n_steps, 500 * n_requests) << "it continues for ever";
      take_news();
      if (::testing::Test::HasFailure()) return;
    }
    expect_nothing_left();
    count();
    compare();
  }

 private:
  std::int32_t between(std::int32_t least, std::int32_t most) {
    return least + static_cast<std::int32_t>(rng_() % static_cast<std::uint32_t>(most - least + 1));
  }
  bool one_in(std::uint32_t n) { return rng_() % n == 0; }
  template <class Container>
  auto& any_of(Container& container) {
    return *std::next(container.begin(), static_cast<std::ptrdiff_t>(rng_() % container.size()));
  }

  EngineOptions any_options() {
    const std::int64_t state_bytes = state_shape(spec_, 1, DType::f32).slot_bytes();
    EngineOptions options{.relay = !one_in(3), .batch_invariant = true};
    options.kv_events = one_in(2);
    options.max_num_seqs = between(1, 7);
    options.max_num_batched_tokens = between(options.max_num_seqs + 4, 120);
    options.max_prefill_tokens = one_in(2) ? between(4, 30) : 0;
    options.max_model_len = kLongest;
    options.snapshot_bytes = state_bytes * between(0, 8);
    options.host_tier_bytes = one_in(3) ? 0 : 3 * state_bytes * between(1, 12);
    options.enforce_eager = one_in(4);
    options.state_snapshot_interval = one_in(3) ? 64 : 0;
    options.has_priorities = true;
    options.max_pinned_blocks = one_in(2) ? between(4, 20) : 0;
    if (one_in(3)) options.speculation = {.n_tokens = between(1, 6), .lookup_max = 3, .lookup_min = 1};
    return options;
  }

  CacheScope any_scope() { return one_in(4) ? CacheScope{.adapter = "", .salt = "tenant", .salt_from = 32} : CacheScope{}; }
  /// Few beginnings, so that they are shared.
  std::vector<TokenId> any_beginning() {
    return joined(random_prompt(rng_() % 2, 16 * (rng_() % 4)), random_prompt(20 + rng_() % 3, 8 * (rng_() % 6)));
  }

  Request any_request() {
    std::vector<TokenId> prompt = any_beginning();
    if (!ended_.empty() && one_in(3)) prompt = any_of(ended_);  // the next turn of a conversation
    prompt = joined(prompt, random_prompt(1000 + rng_() % 7, 1 + rng_() % 30));
    prompt.resize(std::min(prompt.size(), kLongestPrompt));
    Request request = greedy(std::move(prompt), between(1, 45));
    if (one_in(2)) {
      request.sampling.temperature = 0.6F;
      request.sampling.seed = rng_() % 5;
    }
    if (one_in(2)) request.sampling.allowed_ids = random_prompt(900 + rng_() % 4, 2 + rng_() % 4);  // text that repeats
    if (one_in(4)) request.sampling.stop_ids = random_prompt(rng_() % 50, 3);
    if (one_in(6)) request.sampling.repetition_penalty = 1.2F;
    if (one_in(6)) request.sampling.n_top_logprobs = 2;
    if (one_in(8)) request.sampling.n_prompt_logprobs = 1;
    if (one_in(5)) request.n_sequences = between(2, 4);
    if (one_in(4)) request.priority = between(-1, 1);
    if (one_in(3)) request.tenant = {between(0, 2), between(1, 3)};
    if (one_in(5)) constrain(request);
    request.scope = any_scope();
    if (one_in(2)) request.speculation = {.n_tokens = between(1, 6), .lookup_max = 3, .lookup_min = 1};
    if (spec_.uses_mtp && one_in(2)) request.speculation = {.n_tokens = between(1, 3), .method = DraftMethod::mtp};
    return request;
  }
  void constrain(Request& request) {
    static const char* const kExpressions[] = {"[a-z]*", "([a-c]|ab|[ab]{2,5}x){3,40}y?",
                                               "(name: value value value [a-f]+; null null null [0-9]{3}, ){1,4}"};
    request.sampling.allowed_ids = {};
    request.sampling.stop_ids = {};
    request.sampling.ignore_eos = false;
    request.constraint = testing::constraint_of(grammar::GrammarKind::regex, kExpressions[rng_() % 3], one_in(2));
  }

  /// What callers do between two steps.
  void command(bool submits) {
    if (submits && one_in(2)) {
      Request request = any_request();
      const RequestId id = engine_->submit(request);
      for (std::int32_t i = 0; i < request.n_sequences; ++i) generated_[{id.value, i}];
      requests_.emplace(id.value, std::move(request));
    }
    if (!requests_.empty() && one_in(15)) end_one();
    if (engine_->registrations().size() < 4 && submits && one_in(12)) engine_->register_prefix(any_prefix(), any_scope());
    if (!engine_->registrations().empty() && one_in(40)) any_of(engine_->registrations()).stop.request_stop();
    if (!pins_.empty() && one_in(submits ? 15 : 5)) unpin();
    if (engine_->copies().size() < 3 && submits) begin_copies();
    for (SteppedEngine::Copy& copy : engine_->copies()) {
      if (one_in(30)) engine_->abandon(copy);
      if (!one_in(3)) engine_->advance(copy);
    }
    if (one_in(200)) engine_->cache().drop_cached();
    if (one_in(60)) engine_->loop().set_relay(one_in(2));
  }
  std::vector<TokenId> any_prefix() {
    std::vector<TokenId> prefix = joined(any_beginning(), random_prompt(40 + rng_() % 2, 8 * (rng_() % 4)));
    if (!ended_.empty() && one_in(4)) prefix = any_of(ended_);
    if (prefix.empty()) prefix = random_prompt(40, 24);
    return prefix;
  }
  void end_one() {
    const auto request = std::next(requests_.begin(), static_cast<std::ptrdiff_t>(rng_() % requests_.size()));
    const RequestId id{request->first};
    if (one_in(2)) return engine_->finish(id, {}, FinishReason::abort);
    const std::int32_t index = between(0, request->second.n_sequences - 1);
    stopped_.insert({id.value, index});
    engine_->finish(id, index, FinishReason::stop);
  }
  void unpin() {
    const std::size_t at = rng_() % pins_.size();
    engine_->unpin(pins_[at].info->id);
    pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void begin_copies() {
    const auto has_block = [](const auto& of) { return of.tokens.size() >= kChaosBlockLen; };
    if (!pins_.empty() && one_in(15)) {
      const auto& pinned = any_of(pins_);
      if (has_block(pinned)) engine_->copy(BlockTransfer::Direction::out_of_cache, pinned.tokens, pinned.scope);
    }
    if (!stored_.empty() && one_in(15)) {
      const StoredPrefix& prefix = any_of(stored_);
      engine_->copy(BlockTransfer::Direction::into_cache, prefix.tokens, prefix.scope, prefix.pieces);
    }
  }

  void take_news() {
    collect(engine_->take_events(), generated_);
    for (const auto& [key, sequence] : generated_)
      if (sequence.finished && reported_.insert(key).second) {
        const auto& prompt = requests_.at(key.first).prompt;
        ended_.push_back(joined({prompt.begin(), prompt.end()}, sequence.tokens));
      }
    for (SteppedEngine::Registered& registered : engine_->take_registered()) take(std::move(registered));
    for (SteppedEngine::Copied& copied : engine_->take_copied()) take(std::move(copied));
    for (const KvEvent& event : engine_->take_kv_events()) take(event);
  }
  /// All full blocks are pinned, and the state after them.
  void take(SteppedEngine::Registered registered) {
    if (!registered.info) {
      counts_.n_refused += registered.was_stopped ? 0 : 1;
      counts_.n_stopped += registered.was_stopped ? 1 : 0;
      const ErrorCode expected = registered.was_stopped ? ErrorCode::unavailable : ErrorCode::out_of_memory;
      EXPECT_TRUE(registered.info.error().code == expected || registered.info.error().code == ErrorCode::out_of_memory)
          << registered.info.error().message;
      return;
    }
    const auto n_blocks = static_cast<std::int32_t>(registered.tokens.size()) / kChaosBlockLen;
    EXPECT_EQ(registered.info->n_pinned_tokens, n_blocks * kChaosBlockLen) << "of " << registered.tokens.size();
    EXPECT_EQ(registered.pin.snapshot != StateSlots::kNone, n_blocks > 0) << "of " << registered.tokens.size();
    ++counts_.n_registered;
    pins_.push_back(std::move(registered));
  }
  void take(SteppedEngine::Copied copied) {
    auto& [copy, result, pin] = copied;
    BlockTransfer& transfer = copy.transfer;
    if (!result) {
      ++counts_.n_copies_failed;
      return;
    }
    if (!copy.is_import()) {
      ++counts_.n_copied_out;
      stored_.push_back({std::move(transfer.tokens), std::move(transfer.scope), std::move(copy.pieces)});
      return;
    }
    ++counts_.n_copied_in;
    ASSERT_FALSE(pin.empty());
    EXPECT_EQ(pin.mapped().pin.n_blocks, static_cast<std::int32_t>(transfer.tokens.size()) / kChaosBlockLen);
    EXPECT_NE(pin.mapped().pin.snapshot, StateSlots::kNone);
    if (one_in(4)) return engine_->give_up(std::move(pin));
    engine_->register_prefix(std::move(transfer.tokens), std::move(transfer.scope), std::move(pin));
  }
  void take(const KvEvent& event) {
    for (const BlockHash& hash : event.hashes) {
      if (event.kind == KvEvent::Kind::stored)
        EXPECT_TRUE(told_.insert(hash).second) << "a block is stored twice";
      else
        EXPECT_EQ(told_.erase(hash), 1u) << "a block is removed that was not stored";
    }
    if (event.kind == KvEvent::Kind::cleared) told_.clear();
  }

  /// Without its pins, the cache holds what it can evict, and once that is dropped, nothing.
  void expect_nothing_left() {
    while (!pins_.empty()) unpin();
    while (engine_->step()) {
    }
    take_news();
    KvCache& cache = engine_->cache();
    EXPECT_EQ(cache.n_used(), 0) << "blocks leaked";
    EXPECT_EQ(engine_->metrics().kv_blocks_used.value(), 0);
    EXPECT_EQ(cache.n_pinned() + cache.states()->n_pinned(), 0);
    EXPECT_EQ(cache.states()->n_free() + cache.states()->n_snapshots(), cache.states()->n_slots()) << "slots leaked";
    EXPECT_EQ(cache.kept_rows().n_taken(), 0) << "drafts leaked";
    if (options_.kv_events) {
      EXPECT_EQ(static_cast<std::int32_t>(told_.size()), cache.n_cached());
    }
    counts_.n_snapshots_evicted += cache.states()->n_evicted();
    cache.drop_cached();
    engine_->loop().check_invariants();
    EXPECT_EQ(cache.states()->n_free(), cache.states()->n_slots()) << "snapshots leaked";
    EXPECT_EQ(cache.free_blocks(0).size(), static_cast<std::size_t>(n_blocks_));
    if (cache.tier() != nullptr) {
      EXPECT_EQ(cache.tier()->n_entries() + cache.state_tier()->n_entries(), 0);
    }
    EXPECT_EQ(engine_->metrics().num_requests_running.value() + engine_->metrics().num_requests_waiting.value(), 0);
  }
  void count() {
    const EngineMetrics& metrics = engine_->metrics();
    counts_.n_preempted += metrics.num_preemptions.value();
    counts_.n_hits += metrics.prefix_cache_hits.value();
    counts_.n_replayed += metrics.prompt_tokens_replayed.value();
    counts_.n_saved_bytes += metrics.kv_offload_saved_bytes.value();
    counts_.n_loaded_bytes += metrics.kv_offload_loaded_bytes.value();
    counts_.n_ngram_drafts += metrics.draft_tokens_by_source[0].value();
    counts_.n_mtp_drafts += metrics.draft_tokens_by_source[1].value();
    counts_.n_grammar_drafts += metrics.draft_tokens_by_source[2].value();
    counts_.n_accepted += metrics.spec_decode_num_accepted_tokens.value();
    if (engine_->device() == nullptr) return;
    counts_.n_replays += static_cast<std::int64_t>(engine_->device()->n_replays());
    counts_.n_states_overwritten += static_cast<std::int64_t>(engine_->device()->n_states_overwritten());
  }

  /// With the answers of an engine that has room for all of them. What was ended early has their first tokens.
  void compare() {
    EngineOptions plain{.batch_invariant = true, .enable_prefix_caching = false, .max_num_seqs = 32};
    plain.max_model_len = kLongest;
    plain.has_priorities = true;
    const auto reference = testing::make_tiny_engine(plain, 400, spec_, 1);
    std::vector<Request> requests;
    for (const auto& [id, request] : requests_) {
      requests.push_back(request);
      requests.back().speculation = SpeculationOptions{};
      requests.back().constraint.encode = {};
    }
    const std::vector<Generated> answers = testing::run_requests(*reference, requests);
    EXPECT_EQ(reference->metrics().spec_decode_num_draft_tokens.value(), 0);
    auto expected = answers.begin();
    for (const auto& [key, got] : generated_) {
      SCOPED_TRACE(::testing::Message() << "request " << key.first << ", sequence " << key.second);
      Generated answer = *expected++;
      ASSERT_TRUE(got.finished) << "it never ended";
      const bool is_cancelled = got.finished == FinishReason::abort;
      if (is_cancelled || (stopped_.contains(key) && !got.stop_id && got.tokens.size() < answer.tokens.size())) {
        counts_.n_cancelled += 1;
        ASSERT_LE(got.tokens.size(), answer.tokens.size());
        answer.tokens.resize(got.tokens.size());
        answer.logprobs.resize(got.logprobs.size());
      } else if (!stopped_.contains(key)) {
        EXPECT_EQ(got.finished, answer.finished);
        EXPECT_EQ(got.stop_id, answer.stop_id);
        EXPECT_EQ(got.prompt_scores.size(), answer.prompt_scores.size());
      }
      EXPECT_EQ(got.tokens, answer.tokens);
      EXPECT_EQ(got.logprobs, answer.logprobs);
      if (::testing::Test::HasFailure()) return;
    }
  }

  std::mt19937 rng_;
  ModelSpec spec_;
  ChaosCounts& counts_;
  std::vector<StoredPrefix>& stored_;
  EngineOptions options_;
  std::int32_t n_blocks_;
  std::unique_ptr<SteppedEngine> engine_;
  std::map<std::int64_t, Request> requests_;
  std::map<SequenceKey, Generated> generated_;
  std::set<SequenceKey> stopped_;            ///< by the caller
  std::set<SequenceKey> reported_;           ///< in ended_
  std::vector<std::vector<TokenId>> ended_;  ///< prompts with their answers
  std::vector<SteppedEngine::Registered> pins_;
  std::set<BlockHash> told_;  ///< by events
};

void run_chaos(const ModelSpec& spec, std::uint32_t first_seed, std::uint32_t n_seeds, ChaosCounts& counts) {
  std::vector<StoredPrefix> stored;
  for (std::uint32_t seed = first_seed; seed < first_seed + n_seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Chaos(seed, spec, counts, stored).run(40);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(EngineStatesChaos, answers_are_those_without_a_cache_and_drafts_whatever_is_asked_meanwhile) {
  const std::uint32_t n_seeds = testing::is_long_run() ? 100 : 8;
  ChaosCounts counts;
  run_chaos(testing::recurrent_spec(), 1, n_seeds, counts);
  run_chaos(testing::recurrent_mtp_spec(), 1001, n_seeds, counts);
  if (HasFailure()) return;
  const std::int64_t n = 2 * n_seeds;
  EXPECT_GT(counts.n_preempted, n) << "the load was too light to show anything";
  EXPECT_GT(counts.n_cancelled, 2 * n);
  EXPECT_GT(counts.n_hits, 100 * n);
  EXPECT_GT(counts.n_replayed, 50 * n);
  EXPECT_GT(counts.n_snapshots_evicted, 5 * n);
  EXPECT_GT(counts.n_saved_bytes, 10'000 * n);
  EXPECT_GT(counts.n_loaded_bytes, 10'000 * n);
  EXPECT_GT(counts.n_ngram_drafts, 50 * n);
  EXPECT_GT(counts.n_mtp_drafts, 50 * n);
  EXPECT_GT(counts.n_grammar_drafts, n);
  EXPECT_GT(counts.n_accepted, 20 * n);
  EXPECT_GT(counts.n_registered, n);
  EXPECT_GT(counts.n_refused, 0);
  EXPECT_GT(counts.n_stopped, 0);
  EXPECT_GT(counts.n_copied_out, n / 4);
  EXPECT_GT(counts.n_copied_in, n / 4);
  EXPECT_GT(counts.n_copies_failed, 0);
  EXPECT_GT(counts.n_replays, 10 * n) << "decode steps are replayed";
  EXPECT_GT(counts.n_states_overwritten, 10 * n) << "freed states are overwritten";
}

}  // namespace
}  // namespace baton
