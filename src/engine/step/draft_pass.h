/// A pass of a model's layer for drafts (MtpSpec).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/batch.h"

namespace baton {

/// StepHeader::step of passes, which store keys in one layer of blocks that steps have begun.
inline constexpr std::int64_t kDraftStep = -1;

/// One run of the layer. The first has all rows of the step, so that the layer has keys and values wherever the model has them; each
/// following one has a row for every sequence that wants another draft. Tokens that a pass drafts are the next one's input.
struct DraftPass {
  StepInput input;                        ///< its samples are greedy
  std::vector<std::int32_t> hidden_rows;  ///< see Model::draft
  std::vector<std::size_t> run_of_sample;
};

}  // namespace baton
