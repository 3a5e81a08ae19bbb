/// What `baton simulate` reads: traces of request arrivals, as published (Mooncake's JSON lines with hashes of blocks, Azure's
/// tables of lengths), and measured times of steps.
#pragma once

#include <string_view>

#include "core/result.h"
#include "engine/step/replay.h"
#include "engine/step/step_cost_table.h"

namespace baton {

/// JSON lines {timestamp (ms), input_length, output_length, hash_ids?: one for each 512 tokens of the prompt}, or a
/// table with the columns TIMESTAMP (date and time, or seconds), ContextTokens, GeneratedTokens. Requests are put in
/// the order of their arrival, the first at 0. Errors (invalid_data) name `what` and the line.
Result<Trace> parse_trace(std::string_view text, std::string_view what);

/// The JSON of `baton bench steps`. Errors (invalid_data) name `what` and the step by its place: steps[0] is the first.
Result<StepCostTable> parse_step_costs(std::string_view text, std::string_view what);

}  // namespace baton
