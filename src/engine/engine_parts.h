/// What an engine is made of: its options checked, its sizes chosen, its memory allocated.
#pragma once

#include <memory>
#include <vector>

#include "core/result.h"
#include "engine/batch_builder.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "model/decoder.h"

namespace baton {

struct EngineParts {
  EngineInfo info;
  std::vector<TokenId> eos_token_ids;  ///< the model's and the options', each once
  BatchBuilder builder;
  std::unique_ptr<Executor> executor;
  StepBounds bounds;
  std::int32_t max_scores = 0;  ///< rows of prompts that a step may score
  std::int32_t max_drafts = 0;  ///< of these, those that may be drafts instead
};

/// Positions that a sequence may have in steps that are not committed.
std::int32_t max_rows_in_flight(const EngineOptions& options);

/// Errors: invalid_request names the flag at fault; out_of_memory.
Result<EngineParts> make_parts(const EngineOptions& options, std::unique_ptr<Backend> backend, std::unique_ptr<Model> model);

}  // namespace baton
