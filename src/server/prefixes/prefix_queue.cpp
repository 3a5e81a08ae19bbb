/// Adding and removing registrations.
#include "server/prefixes/prefix_queue.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace baton {

Result<void> PrefixQueue::push(ExchangeId exchange, PrefixRequest request) {
  const std::size_t n_bytes = content_bytes(request.definition);
  std::string name = request.definition.name;
  const MutexLock lock(mutex_);
  if (waiting_.size() >= kMaxQueuedPrefixes || (n_bytes_ + n_bytes > max_bytes_ && !waiting_.empty()))
    return fail(ErrorCode::unavailable,
                fmt::format("{} prefixes of {} bytes wait to be computed, and no more may; try again later", waiting_.size(),
                            n_bytes_));
  waiting_.emplace_back(exchange, std::move(request), std::move(name), n_bytes);
  n_bytes_ += n_bytes;
  return {};
}

PrefixQueue::Registration* PrefixQueue::begin() {
  const MutexLock lock(mutex_);
  if (waiting_.empty()) return nullptr;
  running_.splice(running_.begin(), waiting_, waiting_.begin());
  n_bytes_ -= running_.front().n_bytes;
  return &running_.front();
}

void PrefixQueue::end() {
  Registrations ended;  // freed outside the lock
  const MutexLock lock(mutex_);
  ended.swap(running_);
}

void PrefixQueue::erase(Registrations::iterator one) noexcept {
  n_bytes_ -= one->n_bytes;
  waiting_.erase(one);
}

std::vector<ExchangeId> PrefixQueue::remove(std::string_view name) {
  const MutexLock lock(mutex_);
  std::vector<ExchangeId> removed;
  removed.reserve(waiting_.size());
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto one = at++;
    if (one->name != name) continue;
    removed.push_back(one->exchange);  // it has room
    erase(one);
  }
  for (Registration& running : running_)
    if (running.name == name) running.cancel.request("it was removed");
  return removed;
}

bool PrefixQueue::take_back(ExchangeId exchange) noexcept {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(waiting_, exchange, &Registration::exchange);
  if (found == waiting_.end()) return false;
  erase(found);
  return true;
}

void PrefixQueue::leave(ExchangeId exchange) {
  if (take_back(exchange)) return;
  const MutexLock lock(mutex_);
  for (Registration& running : running_)
    if (running.exchange == exchange) running.cancel.request("its client has left");
}

}  // namespace baton
