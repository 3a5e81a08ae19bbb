/// Requests and commands for the engine's thread, which takes them once in each step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "engine/request/request.h"
#include "engine/schedule/sequence.h"

namespace baton {

struct SubmitCommand {
  RequestId id;
  std::vector<std::unique_ptr<Sequence>> sequences;  ///< made by the caller: a request for which there is no memory fails there
};
struct FinishCommand {
  RequestId request;
  std::optional<std::int32_t> index;  ///< absent: all sequences of the request
  FinishReason reason = FinishReason::abort;
};
/// What callers asked for since the engine's thread last took it. Guarded by the engine's mutex. The order between the
/// kinds does not matter: a request is submitted before it is finished.
struct Inbox {
  std::vector<SubmitCommand> submits;
  std::vector<FinishCommand> finishes;
  bool wants_tree = false;  ///< see Engine::tree

  bool is_empty() const { return submits.empty() && finishes.empty() && !wants_tree; }
};

}  // namespace baton
