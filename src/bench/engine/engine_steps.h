/// The step loop of benchmarks that run an engine on their own thread.
#pragma once

#include <functional>
#include <span>

#include "core/result.h"
#include "engine/engine.h"

namespace baton {

/// Runs steps until the engine has nothing to do. `after_step` is called after each step with its events, of which there
/// may be none; it may submit and cancel requests. Errors: internal if a sequence ended with a NaN among its logits;
/// those of `after_step`.
Result<void> step_to_end(Engine& engine, const std::function<Result<void>(std::span<const Event>)>& after_step);
/// The same, without showing the events.
Result<void> step_to_end(Engine& engine);

}  // namespace baton
