/// From a sequence to the sampling metadata of its next token, and from the device's results to tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kernels/batch.h"

namespace baton {

/// The lists that a step's samples point into.
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

/// Brings `counts`, which the sequence's penalties need, up to the tokens it has.
void count_tokens(const Sequence& sequence, TokenCounts& counts);

/// The sampling metadata for the logits of batch row `row`; its lists are appended to `lists`. A token that a step in
/// flight samples is not known here: the sampler counts it, and a bad word whose second last token it may be is banned
/// on that condition. Aborts if the sequence's parameters were not checked (check_request).
SamplingMetadata make_sampling(const Sequence& sequence, std::int32_t row, SamplingLists& lists);

/// The sampling metadata for the logits of batch row `row`, the row of the last of `drafts`, as if all of them were
/// accepted. `slot` begins with the step.
SamplingMetadata make_draft_sampling(const Sequence& sequence, std::span<const TokenId> drafts, SlotId slot, std::int32_t row,
                                     SamplingLists& lists);

/// The sampling metadata that scores the prompt's token after `position`, whose row is `row`.
SamplingMetadata make_scoring(const Sequence& sequence, std::int32_t row, std::int32_t position);

/// The outcome that a result gives its sequence; none if the sequence had ended before the step.
std::optional<StepOutcome> read_result(const Sequence& sequence, const SampleResult& result);
/// Appends a later row's outcome of the same sequence and step. The outcome of a draft's row is ignored unless all
/// drafts up to that one were accepted: `drafts` are the sequence's draft tokens up to its row, none for other rows.
void join(StepOutcome& outcome, StepOutcome next, std::span<const TokenId> drafts);

}  // namespace baton
