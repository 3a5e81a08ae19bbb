/// Makes sampling metadata and reads results.
#include "engine/step/sampler.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/check.h"

namespace baton {
namespace {

template <class T>
Range append(std::vector<T>& all, std::span<const T> own) {
  const Range range{static_cast<std::int32_t>(all.size()), static_cast<std::int32_t>(own.size())};
  all.insert(all.end(), own.begin(), own.end());
  return range;
}

/// Bans the last token of each bad word whose other tokens are the end of the answer, as far as this is known.
Range append_bans(std::span<const std::vector<TokenId>> bad_words, std::span<const TokenId> answer, bool has_unknown_token,
                  std::vector<TokenBan>& bans) {
  Range range{static_cast<std::int32_t>(bans.size()), 0};
  for (const std::vector<TokenId>& word : bad_words) {
    const std::size_t n_unknown = has_unknown_token && word.size() > 1 ? 1 : 0;
    const auto known = std::span(word).first(word.size() - 1 - n_unknown);
    if (answer.size() < known.size() || !std::ranges::equal(answer.last(known.size()), known)) continue;
    bans.push_back({n_unknown > 0 ? word[word.size() - 2] : -1, word.back()});
    ++range.count;
  }
  return range;
}

/// The sampling metadata of a sample, without its slot, its counts and what is banned.
SamplingMetadata make_common_sampling(const Sequence& sequence, std::int32_t row, SamplingLists& lists) {
  check(!sequence.is_prefill_only() && sequence.schedule->slot.is_valid(),
        "make_sampling: the sequence generates nothing, or does not run");
  const std::optional<ConstantSampling>& known = sequence.sampling->constant;
  SamplingMetadata metadata = known ? known->metadata : constant_sampling(sequence).metadata;
  metadata.row = row;
  if (known && !known->has_lists) {
    metadata.biases.first = static_cast<std::int32_t>(lists.biases.size());
    metadata.allowed.first = static_cast<std::int32_t>(lists.allowed_ids.size());
    return metadata;
  }
  const SamplingParams& sampling = sequence.task->sampling;
  metadata.biases = append(lists.biases, std::span<const TokenBias>(sampling.logit_bias));
  metadata.allowed = append(lists.allowed_ids, std::span<const TokenId>(sampling.allowed_ids));
  return metadata;
}

std::span<const TokenId> answer_of(const Sequence& sequence) {
  return std::span(sequence.schedule->tokens).subspan(static_cast<std::size_t>(sequence.task->prompt_len));
}

}  // namespace

ConstantSampling constant_sampling(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.task->sampling;
  check(sampling.seed.has_value(), "make_sampling: a sequence without a seed");
  check(sequence.task->stop_ids.size() <= kMaxStopIds, "make_sampling: too many stop ids");
  ConstantSampling constant;
  SamplingMetadata& metadata = constant.metadata;
  metadata.temperature = sampling.temperature;
  metadata.top_k = sampling.top_k;
  metadata.top_p = sampling.top_p;
  metadata.min_p = sampling.min_p;
  metadata.n_top_logprobs = sampling.n_top_logprobs;
  metadata.seed = *sampling.seed;
  metadata.min_tokens = sampling.min_tokens;
  metadata.max_tokens = sequence.task->max_len - sequence.task->prompt_len;
  metadata.n_stop_ids = static_cast<std::int32_t>(sequence.task->stop_ids.size());
  std::ranges::copy(sequence.task->stop_ids, metadata.stop_ids.begin());
  metadata.repetition_penalty = sampling.repetition_penalty;
  metadata.presence_penalty = sampling.presence_penalty;
  metadata.frequency_penalty = sampling.frequency_penalty;
  constant.has_grammar = sequence.task->constraint != nullptr;
  constant.has_lists = !sampling.logit_bias.empty() || !sampling.bad_words.empty() || !sampling.allowed_ids.empty();
  return constant;
}

void count_tokens(const Sequence& sequence, TokenCounts& counts) {
  const std::optional<ConstantSampling>& known = sequence.sampling->constant;
  if (known && !known->metadata.has_penalties()) return;
  const SamplingParams& sampling = sequence.task->sampling;
  const bool lists_prompt = sampling.repetition_penalty != 1;
  if (!lists_prompt && sampling.presence_penalty == 0 && sampling.frequency_penalty == 0) return;
  counts.follow(sequence.schedule->tokens, sequence.task->prompt_len, lists_prompt);
}

SamplingMetadata make_sampling(const Sequence& sequence, std::int32_t row, SamplingLists& lists) {
  SamplingMetadata metadata = make_common_sampling(sequence, row, lists);
  metadata.slot = sequence.schedule->slot.value;
  metadata.n_generated_before = sequence.schedule->n_before_slot;
  // This sample, and those of drafts, are already counted among the samples in flight.
  const std::int32_t n_unknown =
      std::max(0, sequence.schedule->n_samples_in_flight - sequence.schedule->n_drafts_in_flight - 1);
  check(n_unknown <= 1, "make_sampling: more than one token is unknown");
  metadata.counts_last_token = n_unknown;
  metadata.counts = append(lists.counts, sequence.sampling->counts.list());
  const std::optional<ConstantSampling>& known = sequence.sampling->constant;
  metadata.bans.first = static_cast<std::int32_t>(lists.bans.size());
  if (!known || known->has_lists)
    metadata.bans = append_bans(sequence.task->sampling.bad_words, answer_of(sequence), n_unknown > 0, lists.bans);
  return metadata;
}

SamplingMetadata make_draft_sampling(const Sequence& sequence, std::span<const TokenId> drafts, SlotId slot, std::int32_t row,
                                     SamplingLists& lists) {
  SamplingMetadata metadata = make_common_sampling(sequence, row, lists);
  metadata.slot = slot.value;
  metadata.n_generated_before = sequence.n_generated() + static_cast<std::int32_t>(drafts.size());
  if (metadata.has_penalties())
    metadata.counts = append(lists.counts, std::span<const TokenCount>(sequence.sampling->counts.list_with(drafts)));
  if (sequence.task->sampling.bad_words.empty()) return metadata;
  const auto known = answer_of(sequence);
  std::vector<TokenId> answer(known.begin(), known.end());
  answer.insert(answer.end(), drafts.begin(), drafts.end());
  metadata.bans = append_bans(sequence.task->sampling.bad_words, answer, /*has_unknown_token=*/false, lists.bans);
  return metadata;
}

SamplingMetadata make_scoring(const Sequence& sequence, std::int32_t row, std::int32_t position) {
  check(position + 1 < sequence.task->prompt_len && sequence.schedule->slot.is_valid(),
        "make_scoring: no token of the prompt is next");
  SamplingMetadata metadata;
  metadata.row = row;
  metadata.slot = sequence.schedule->slot.value;
  metadata.scored = sequence.schedule->tokens[static_cast<std::size_t>(position) + 1];
  metadata.n_top_logprobs = sequence.task->sampling.n_prompt_logprobs;
  return metadata;
}

bool read_result(const Sequence& sequence, const SampleResult& result, StepOutcome& outcome) {
  if (result.was_finished != 0) return false;
  outcome.id = sequence.task->id;
  if (result.finished == FinishedBy::not_a_number) {
    outcome.finished = FinishReason::error;
    return true;
  }
  if (result.finished == FinishedBy::nothing_allowed) {
    outcome.finished = FinishReason::stop;
    return true;
  }
  const bool is_scored = result.rank > 0;
  TokenOutput output;
  output.token = result.token;
  output.rank = result.rank;
  if (is_scored || sequence.task->sampling.n_top_logprobs >= 0) output.logprob = result.logprob;
  for (std::int32_t i = 0; i < result.n_top; ++i) {
    const auto at = static_cast<std::size_t>(i);
    output.top_logprobs.push_back({result.top_ids[at], result.top_logprobs[at]});
  }
  if (result.finished == FinishedBy::stop_id) {
    outcome.finished = FinishReason::stop;
    outcome.stop_token = std::move(output);
    return true;
  }
  if (result.finished == FinishedBy::length) outcome.finished = FinishReason::length;
  if (is_scored)
    outcome.prompt_scores.push_back(std::move(output));
  else
    outcome.tokens.push_back(std::move(output));
  return true;
}

std::optional<StepOutcome> read_result(const Sequence& sequence, const SampleResult& result) {
  std::optional<StepOutcome> outcome(std::in_place);
  if (!read_result(sequence, result, *outcome)) outcome.reset();
  return outcome;
}

void join(StepOutcome& outcome, StepOutcome next, std::span<const TokenId> drafts) {
  check(outcome.id == next.id, "join: outcomes of two sequences");
  outcome.n_drafts += drafts.empty() ? 0 : 1;
  if (outcome.finished) return;  // tokens after the end are ignored
  if (!drafts.empty()) {
    if (outcome.tokens.size() != drafts.size() || outcome.tokens.back().token != drafts.back()) return;
    ++outcome.n_accepted;
  }
  std::ranges::move(next.prompt_scores, std::back_inserter(outcome.prompt_scores));
  std::ranges::move(next.tokens, std::back_inserter(outcome.tokens));
  outcome.finished = next.finished;
  outcome.stop_token = std::move(next.stop_token);
}

}  // namespace baton
