/// Registrations of prefixes that wait for the thread that computes them.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "core/result.h"
#include "server/http/message.h"
#include "server/prefixes/prefix_definition.h"
#include "server/prefixes/prefixes.h"

namespace baton {

/// The most registrations that wait.
inline constexpr std::size_t kMaxQueuedPrefixes = 32;

/// The registrations that came through the API and have not ended: the waiting ones in order, and the running one.
/// Its client may leave, and its prefix may be deleted, at any time. Thread: any; one thread alone calls
/// `begin` and `end`.
class PrefixQueue {
 public:
  struct Registration {
    ExchangeId exchange;
    PrefixRequest request;
    std::string name;
    std::size_t n_bytes = 0;  ///< of its content
    PrefixCancel cancel = {};
  };

  /// `max_bytes`: of the contents of all registrations that wait.
  explicit PrefixQueue(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Error: unavailable, if too many wait.
  Result<void> push(ExchangeId exchange, PrefixRequest request);
  /// The next registration, which runs until `end`; null if none waits.
  Registration* begin();
  void end();

  /// Removes the waiting registrations of this name, and cancels the running one. Returns the exchanges of the removed
  /// ones.
  std::vector<ExchangeId> remove(std::string_view name);
  /// Removes the registration of a client that has left, or cancels it if it runs.
  void leave(ExchangeId exchange);
  /// Removes the registration of an exchange that waits. False if it does not wait.
  bool take_back(ExchangeId exchange) noexcept;

 private:
  using Registrations = std::list<Registration>;
  void erase(Registrations::iterator one) noexcept BATON_REQUIRES(mutex_);

  const std::size_t max_bytes_;
  mutable Mutex mutex_;
  Registrations waiting_ BATON_GUARDED_BY(mutex_);
  std::size_t n_bytes_ BATON_GUARDED_BY(mutex_) = 0;  ///< of waiting_
  Registrations running_ BATON_GUARDED_BY(mutex_);    ///< at most one
};

}  // namespace baton
