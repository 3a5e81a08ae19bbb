/// Orders and results of sampling.
#include "engine/sampler.h"

#include <algorithm>
#include <cstddef>

#include "core/check.h"

namespace baton {

SampleOrder make_order(const Sequence& sequence, std::int32_t row) {
  const SamplingParams& sampling = sequence.sampling;
  check(sampling.seed.has_value(), "make_order: a sequence without a seed");
  check(sequence.stop_ids.size() <= kMaxStopIds, "make_order: too many stop ids");
  check(!sequence.is_fill() && sequence.slot.is_valid(), "make_order: the sequence generates nothing, or does not run");
  SampleOrder order;
  order.row = row;
  order.slot = sequence.slot.value;
  order.temperature = sampling.temperature;
  order.top_k = sampling.top_k;
  order.top_p = sampling.top_p;
  order.n_top_logprobs = sampling.n_top_logprobs;
  order.seed = *sampling.seed;
  order.min_tokens = sampling.min_tokens;
  order.max_tokens = sequence.max_len - sequence.prompt_len;
  order.n_stop_ids = static_cast<std::int32_t>(sequence.stop_ids.size());
  std::ranges::copy(sequence.stop_ids, order.stop_ids.begin());
  order.n_generated_before = sequence.n_before_slot;
  return order;
}

std::optional<StepOutcome> read_result(SequenceId id, std::int32_t n_top_logprobs, const SampleResult& result) {
  if (result.was_finished != 0) return std::nullopt;
  StepOutcome outcome{id, {}, {}, {}};
  if (result.finished == FinishedBy::not_a_number) {
    outcome.finished = FinishReason::error;
    return outcome;
  }
  if (result.finished == FinishedBy::stop_id) {
    outcome.finished = FinishReason::stop;
    outcome.stop_id = result.token;
    return outcome;
  }
  if (result.finished == FinishedBy::length) outcome.finished = FinishReason::length;
  TokenOutput output;
  output.token = result.token;
  if (n_top_logprobs >= 0) output.logprob = result.logprob;
  for (std::int32_t i = 0; i < result.n_top; ++i) {
    const auto at = static_cast<std::size_t>(i);
    output.top_logprobs.push_back({result.top_ids[at], result.top_logprobs[at]});
  }
  outcome.tokens.push_back(std::move(output));
  return outcome;
}

}  // namespace baton
