/// From a sequence to the order of its next token, and from the device's answer to tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kernels/batch.h"

namespace baton {

/// The lists that a step's orders point into.
struct SamplingLists {
  std::vector<TokenCount> counts;
  std::vector<TokenBias> biases;
  std::vector<TokenBan> bans;
  std::vector<TokenId> allowed_ids;

  /// Keeps the memory.
  void clear() {
    counts.clear();
    biases.clear();
    bans.clear();
    allowed_ids.clear();
  }
};

/// Brings the counts that the sequence's penalties need up to the tokens it has.
void count_tokens(Sequence& sequence);

/// The order for the logits of batch row `row`, its lists appended to `lists`. The sequence's token that a step in flight
/// samples is not known here: the sampler counts it, and bad words whose last token but one it may be are banned on condition.
/// Aborts if the sequence's parameters were not checked (check_request).
SamplingMetadata make_sampling(const Sequence& sequence, std::int32_t row, SamplingLists& lists);

/// The order for the logits of batch row `row`, which is of the last of `drafts`: as it will be if all of them come true.
/// `slot` begins with the step.
SamplingMetadata make_draft_sampling(const Sequence& sequence, std::span<const TokenId> drafts, SlotId slot, std::int32_t row,
                                     SamplingLists& lists);

/// The order that scores the prompt's token behind `position`, whose row is `row`.
SamplingMetadata make_scoring(const Sequence& sequence, std::int32_t row, std::int32_t position);

/// What a result means for its sequence; nothing if the sequence had ended before the step.
std::optional<StepOutcome> read_result(const Sequence& sequence, const SampleResult& result);
/// Puts what another result of the same sequence and step means behind what those before it do. One of the row of a draft
/// counts only if all drafts up to that one came true: `drafts` are the tokens of the sequence's drafts up to its row, none for
/// others.
void join(StepOutcome& outcome, StepOutcome next, std::span<const TokenId> drafts);

}  // namespace baton
