/// Adding and removing registrations.
#include "server/prefixes/prefix_queue.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace baton {

Result<void> PrefixQueue::push(Registration registration) {
  const std::size_t n_bytes = registration.n_bytes = content_bytes(registration.request.definition);
  const MutexLock lock(mutex_);
  if (waiting_.size() >= kMaxQueuedPrefixes || (n_bytes_ + n_bytes > max_bytes_ && !waiting_.empty()))
    return fail(ErrorCode::unavailable,
                fmt::format("{} prefixes of {} bytes wait to be computed, and no more may; try again later", waiting_.size(),
                            n_bytes_));
  n_bytes_ += n_bytes;
  waiting_.push_back(std::move(registration));
  return {};
}

std::optional<PrefixQueue::Registration> PrefixQueue::begin() {
  const MutexLock lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  Running running{waiting_.front().exchange, waiting_.front().request.definition.name};
  std::optional<Registration> next(std::move(waiting_.front()));
  waiting_.pop_front();
  n_bytes_ -= next->n_bytes;
  running_ = std::move(running);
  return next;
}

void PrefixQueue::end() {
  const MutexLock lock(mutex_);
  running_.reset();
}

void PrefixQueue::erase(std::list<Registration>::iterator one) noexcept {
  n_bytes_ -= one->n_bytes;
  waiting_.erase(one);
}

std::vector<ExchangeId> PrefixQueue::remove(std::string_view name) {
  const MutexLock lock(mutex_);
  std::vector<ExchangeId> removed;
  removed.reserve(waiting_.size());
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto one = at++;
    if (one->request.definition.name != name) continue;
    removed.push_back(one->exchange);  // it has room
    erase(one);
  }
  if (running_ && running_->name == name) running_->cancel_reason = "it was removed";
  return removed;
}

bool PrefixQueue::take_back(ExchangeId exchange) noexcept {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(waiting_, exchange, &Registration::exchange);
  if (found == waiting_.end()) return false;
  erase(found);
  return true;
}

std::optional<std::string> PrefixQueue::leave(ExchangeId exchange) {
  take_back(exchange);
  const MutexLock lock(mutex_);
  if (!running_ || running_->exchange != exchange) return std::nullopt;
  running_->cancel_reason = "its client has left";
  return running_->name;
}

std::string_view PrefixQueue::cancel_reason() const {
  const MutexLock lock(mutex_);
  return running_ ? running_->cancel_reason : std::string_view();
}

void PrefixQueue::while_running(ExchangeId exchange, const std::function<void()>& act) const {
  const MutexLock lock(mutex_);
  if (running_ && running_->exchange == exchange) act();
}

}  // namespace baton
