/// From a sequence to the order of its next token, and from the device's answer to tokens.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kernels/batch.h"

namespace baton {

/// The order for the logits of batch row `row`. Aborts if the sequence's parameters were not checked (check_request).
SampleOrder make_order(const Sequence& sequence, std::int32_t row);

/// What a result means for its sequence; nothing if the sequence had ended before the step.
std::optional<StepOutcome> read_result(SequenceId id, std::int32_t n_top_logprobs, const SampleResult& result);

}  // namespace baton
