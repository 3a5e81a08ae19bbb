/// Steps an engine on the caller's thread.
#include "bench/engine/engine_steps.h"

#include <chrono>
#include <vector>

namespace baton {

Result<void> step_to_end(Engine& engine, const std::function<Result<void>(std::span<const Event>)>& after_step) {
  while (engine.step()) {
    const std::vector<Event> events = engine.wait_events(std::chrono::milliseconds(0));
    for (const Event& event : events)
      if (event.finished == FinishReason::error)
        return fail(ErrorCode::internal,
                    event.error != nullptr ? event.error->message : "a sequence ended with a NaN among its logits");
    BATON_TRY_VOID(after_step(events));
  }
  return {};
}

Result<void> step_to_end(Engine& engine) {
  return step_to_end(engine, [](std::span<const Event>) { return Result<void>(); });
}

}  // namespace baton
