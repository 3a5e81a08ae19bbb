/// Registrations of prefixes that wait for the thread that computes them.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "core/result.h"
#include "server/http/message.h"
#include "server/prefixes/prefix_definition.h"

namespace baton {

/// The most registrations that wait.
inline constexpr std::size_t kMaxQueuedPrefixes = 32;

/// The registrations that came through the API and have not ended: those that wait, in order, and the one that runs.
/// Whoever asked for one may leave, and its prefix may be deleted, at any time. Thread: any; one thread alone calls
/// `begin` and `end`.
class PrefixQueue {
 public:
  struct Registration {
    ExchangeId exchange;
    PrefixRequest request;
    std::size_t n_bytes = 0;  ///< of its content; `push` sets it
  };

  /// `max_bytes`: of the contents of all registrations that wait.
  explicit PrefixQueue(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Error: unavailable, if too many wait.
  Result<void> push(Registration registration);
  /// The next registration, which runs until `end`; nullopt if none waits.
  std::optional<Registration> begin();
  void end();

  /// Removes those that wait for this name, and marks the one that runs. Returns the exchanges of the removed ones.
  std::vector<ExchangeId> remove(std::string_view name);
  /// Removes the registration of a client that has left. If it is the one that runs, marks it and returns its name.
  std::optional<std::string> leave(ExchangeId exchange);
  /// Removes the registration of an exchange that waits. False if it does not wait.
  bool take_back(ExchangeId exchange) noexcept;
  /// Why the one that runs was marked; empty: it was not.
  std::string_view cancel_reason() const;
  /// Calls `act` if the registration of this exchange runs; it does not end meanwhile.
  void while_running(ExchangeId exchange, const std::function<void()>& act) const;

 private:
  struct Running {
    ExchangeId exchange;
    std::string name;
    std::string_view cancel_reason = {};
  };

  void erase(std::list<Registration>::iterator one) noexcept BATON_REQUIRES(mutex_);

  const std::size_t max_bytes_;
  mutable Mutex mutex_;
  std::list<Registration> waiting_ BATON_GUARDED_BY(mutex_);
  std::size_t n_bytes_ BATON_GUARDED_BY(mutex_) = 0;  ///< of waiting_
  std::optional<Running> running_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
