/// How many sequences wait for their first step, and whether more may.
#pragma once

#include <cstdint>
#include <map>

#include "core/check.h"

namespace baton {

/// Counts by tenant. A tenant may fill a queue that others leave empty, but not keep out others: one that has less than
/// its share of the queue, which is the limit divided by the tenants that wait, may add to it though it is full. So the
/// queue holds at most the limit x (1 + 1/2 + 1/3 + ...) for so many tenants. Thread: the holder of the engine's mutex.
class QueueLimit {
 public:
  /// 0: no limit.
  explicit QueueLimit(std::int64_t limit) : limit_(limit) {}

  std::int64_t size() const { return size_; }
  std::int64_t limit() const { return limit_; }
  /// Whether `n` sequences of a tenant may be added. What is larger than the queue is taken if nobody waits: it would
  /// never be otherwise.
  bool has_room(std::int32_t tenant, std::int64_t n) const {
    if (limit_ == 0 || size_ == 0 || size_ + n <= limit_) return true;
    const auto own = sizes_.find(tenant);
    const std::int64_t n_own = own == sizes_.end() ? 0 : own->second;
    const auto n_tenants = static_cast<std::int64_t>(sizes_.size()) + (n_own == 0 ? 1 : 0);
    return n_tenants > 1 && n_own + n <= limit_ / n_tenants;
  }
  void add(std::int32_t tenant, std::int64_t n) {
    size_ += n;
    sizes_[tenant] += n;
  }
  void remove(std::int32_t tenant, std::int64_t n) {
    const auto own = sizes_.find(tenant);
    check(own != sizes_.end() && own->second >= n, "QueueLimit: more leave than wait");
    size_ -= n;
    if ((own->second -= n) == 0) sizes_.erase(own);
  }

 private:
  const std::int64_t limit_;
  std::int64_t size_ = 0;
  std::map<std::int32_t, std::int64_t> sizes_;  ///< by tenant; none is 0
};

}  // namespace baton
