/// Prompts that clients asked to keep (`cache_control`): pins in the engine that end some time after their last use.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "engine/engine.h"

namespace baton {

/// What a request asks to keep.
struct CachePinRequest {
  std::vector<TokenId> tokens;                    ///< whole blocks
  CacheScope scope;                               ///< of the requests that share them
  std::string owner;                              ///< the name of the key
  std::optional<std::int64_t> owner_blocks = {};  ///< blocks that the owner may have pinned; absent: no limit of its own
  std::chrono::seconds ttl{0};
};

/// Pins prompts, each in the scope of the requests that share it. All together pin at most `max_blocks`, each owner at
/// most its own limit; the pin that was not used for the longest time goes first. A pin ends when a longer one of the
/// same owner and scope covers it for as long.
///
/// Thread: one, which waits while the engine computes what is not in the cache any more.
class CachePins {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CachePins(std::int64_t max_blocks) : max_blocks_(max_blocks) {}

  /// Pins a prompt, or prolongs its pin. False if there is no room for it, or the engine takes none now.
  bool keep(Engine& engine, CachePinRequest request, Clock::time_point now);
  /// Ends the pins whose time is over; returns when the next one's is.
  std::optional<Clock::time_point> remove_expired(Engine& engine, Clock::time_point now);
  /// Ends those of the key `owner` that were not used for the longest time until at most `n_blocks` are left.
  void shrink_owner(Engine& engine, const std::string& owner, std::int64_t n_blocks);

  std::size_t size() const { return pins_.size(); }
  std::int64_t n_blocks() const { return n_blocks_; }

 private:
  struct Pin {
    CachePinRequest request;
    PinId id;
    std::int64_t n_blocks = 0;
    Clock::time_point expires;
  };
  using Pins = std::list<Pin>;

  void remove(Engine& engine, Pins::iterator pin);
  void remove_covered(Engine& engine, const Pin& by);

  const std::int64_t max_blocks_;
  Pins pins_;  // the one that was used last is the first
  std::int64_t n_blocks_ = 0;
};

}  // namespace baton
