/// The parts of an engine: checked options, chosen sizes, allocated memory.
#pragma once

#include <memory>
#include <optional>

#include "core/result.h"
#include "engine/engine_options.h"
#include "engine/step/batch_builder.h"
#include "engine/step/draft_builder.h"
#include "engine/step/executor.h"
#include "model/decoder.h"

namespace baton {

struct EngineParts {
  EngineInfo info;
  BatchBuilder builder;
  std::optional<DraftBuilder> drafter;  ///< of a model with a layer for drafts
  std::unique_ptr<Executor> executor;
  StepBounds bounds;
  std::int32_t max_scores = 0;  ///< prompt rows that a step may score
  std::int32_t max_drafts = 0;  ///< how many of these may be drafts instead
};

/// Rows that are kept for the drafts of a model with recurrent layers (StateStorage): as many as two steps have.
std::int32_t n_kept_rows(const EngineOptions& options, const ModelSpec& spec);

/// Positions that a sequence may have in steps that are enqueued and not committed.
std::int32_t max_rows_in_flight(const EngineOptions& options);

/// The options without what a model cannot do. One with recurrent layers waits in each step for all of its token masks, because
/// a row is computed once. If it has sliding windows beside them it has no prefix cache, because rows that are replayed for a
/// state see keys that the window has left.
EngineOptions options_for(const ModelSpec& spec, const EngineOptions& options);

/// `options`: those of options_for. Errors: invalid_request (the message names the flag), unsupported, out_of_memory.
Result<EngineParts> make_parts(const EngineOptions& options, std::unique_ptr<Backend> backend, std::unique_ptr<Model> model);

}  // namespace baton
