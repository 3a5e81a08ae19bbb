/// What others want of the engine: taken in under its mutex, looked at by its thread once a step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/kv_cache.h"
#include "engine/request.h"
#include "engine/sequence.h"

namespace baton {

/// A prefix being filled; lives on the stack of whoever waits for it.
struct Fill {
  std::vector<TokenId> tokens;
  std::optional<Result<KvCache::Pin>> pin;  ///< guarded by the engine's mutex; set when it is done. No node: nothing to pin
};

struct SubmitCommand {
  RequestId id;
  Request request;
  Sequence::Clock::time_point submitted;
};
struct FinishCommand {
  RequestId request;
  std::optional<std::int32_t> index;  ///< nothing: all of the request
  FinishReason reason = FinishReason::abort;
};
/// What others want of the engine since it last looked. The order of kinds does not matter: what is finished was submitted
/// before.
struct Inbox {
  std::vector<SubmitCommand> submits;
  std::vector<Fill*> fills;
  std::vector<FinishCommand> finishes;
  std::vector<KvCache::Pin> unpins;

  bool is_empty() const { return submits.empty() && fills.empty() && finishes.empty() && unpins.empty(); }
};

}  // namespace baton
