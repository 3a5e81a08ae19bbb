/// Makes the sampling metadata of a sequence's next token, and turns the device's results into tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence.h"
#include "kernels/batch.h"

namespace baton {

/// The lists that the samples of a step refer to.
struct SamplingLists {
  std::vector<TokenCount> counts;
  std::vector<TokenBias> biases;
  std::vector<TokenBan> bans;
  std::vector<TokenId> allowed_ids;

  /// Empties the lists and keeps their memory.
  void clear() {
    counts.clear();
    biases.clear();
    bans.clear();
    allowed_ids.clear();
  }
};

/// Brings `counts`, which the sequence's penalties need, up to date with its tokens.
void count_tokens(const Sequence& sequence, TokenCounts& counts);

/// What all samples of a sequence have in common. Aborts if the sequence's parameters were not checked
/// (check_request).
ConstantSampling constant_sampling(const Sequence& sequence);

/// The sampling metadata for the logits of batch row `row`; appends its lists to `lists`. The host does not yet know a
/// token that a step in flight samples: the sampler counts it on the device, and a bad word whose last token but one
/// it may be is banned on that condition. Aborts if the sequence's parameters were not checked (check_request).
SamplingMetadata make_sampling(const Sequence& sequence, std::int32_t row, SamplingLists& lists);

/// The sampling metadata for the logits of batch row `row`, which is the row of the last of `drafts`, as if all of
/// them were accepted. `slot` is reset by the step.
SamplingMetadata make_draft_sampling(const Sequence& sequence, std::span<const TokenId> drafts, SlotId slot, std::int32_t row,
                                     SamplingLists& lists);

/// The sampling metadata that scores the prompt token after `position`, from the logits of row `row`.
SamplingMetadata make_scoring(const Sequence& sequence, std::int32_t row, std::int32_t position);

/// The outcome of a sequence from its result; nothing if the sequence had ended before the step.
std::optional<StepOutcome> read_result(const Sequence& sequence, const SampleResult& result);
/// The same, into an empty outcome. False if the sequence had ended before the step.
bool read_result(const Sequence& sequence, const SampleResult& result, StepOutcome& outcome);
/// Appends the outcome of a later row of the same sequence and step. A draft's row is ignored unless all drafts up to
/// that row were accepted. `drafts` are the sequence's drafts up to the row, none for other rows.
void join(StepOutcome& outcome, StepOutcome next, std::span<const TokenId> drafts);

}  // namespace baton
