/// What others want of the engine: taken in under its mutex, looked at by its thread once a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/kv_cache.h"
#include "engine/request.h"
#include "engine/sequence.h"

namespace baton {

/// A prefix being filled; lives on the stack of whoever waits for it. The engine's mutex guards what is not `tokens`.
struct Fill {
  std::vector<TokenId> tokens;
  bool is_stopped = false;                  ///< nobody wants it any more
  std::optional<Result<KvCache::Pin>> pin;  ///< set when it is done. No node: nothing to pin

  /// That computes the whole blocks of the tokens.
  std::unique_ptr<Sequence> make_sequence(std::int32_t block_len) const {
    auto sequence = std::make_unique<Sequence>();
    sequence->tokens.assign(tokens.begin(), tokens.end() - static_cast<std::int64_t>(tokens.size()) % block_len);
    sequence->prompt_len = sequence->max_len = sequence->n_tokens();
    return sequence;
  }
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
  bool stops_fills = false;  ///< some are to be looked for that were stopped

  bool is_empty() const { return submits.empty() && fills.empty() && finishes.empty() && unpins.empty() && !stops_fills; }
};

}  // namespace baton
