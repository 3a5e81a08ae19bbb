/// How many sequences wait for their first step, and whether more may.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "core/check.h"
#include "engine/schedule/fair_queue.h"

namespace baton {

/// Counts by tenant, and for each tenant by size of request (FairQueue::size_of; all of one size if the queue is not in
/// the order of sizes). A tenant may fill a queue that others leave empty, but not keep out others: one that has less
/// than its share of the queue, which is the limit divided by the tenants that wait, may add to it though it is full.
/// In the same way requests of one size do not keep out those of another: a tenant may also add to a size that has less
/// than its share of the tenant's share, which is divided by the tenant's sizes that wait.
///
/// So the queue holds at most the limit x (1 + 1/2 + 1/3 + ...) for so many tenants, and that times the same sum for so
/// many sizes. Thread: the holder of the engine's mutex.
class QueueLimit {
 public:
  /// Whose line a sequence waits in.
  struct Line {
    std::int32_t tenant = 0;
    std::size_t size = 0;  ///< below FairQueue::kSizes
  };

  /// 0: no limit.
  explicit QueueLimit(std::int64_t limit) : limit_(limit) {}

  std::int64_t size() const { return size_; }
  std::int64_t limit() const { return limit_; }
  /// Whether `n` sequences may be added to a line. What is larger than the queue is taken if the queue is empty: it
  /// would never be otherwise.
  bool has_room(const Line& line, std::int64_t n) const {
    if (limit_ == 0 || size_ == 0 || size_ + n <= limit_) return true;
    const auto found = counts_.find(line.tenant);
    if (found == counts_.end()) return n <= limit_ / (static_cast<std::int64_t>(counts_.size()) + 1);
    const Counts& own = found->second;
    const std::int64_t share = limit_ / static_cast<std::int64_t>(counts_.size());
    if (counts_.size() > 1 && own.all + n <= share) return true;
    const std::int64_t of_size = own.by_size[line.size];
    const std::int64_t n_sizes =
        std::ranges::count_if(own.by_size, [](std::int64_t count) { return count > 0; }) + (of_size == 0 ? 1 : 0);
    return n_sizes > 1 && of_size + n <= share / n_sizes;
  }
  void add(const Line& line, std::int64_t n) {
    Counts& own = counts_[line.tenant];
    size_ += n;
    own.all += n;
    own.by_size[line.size] += n;
  }
  void remove(const Line& line, std::int64_t n) {
    const auto own = counts_.find(line.tenant);
    check(own != counts_.end() && own->second.by_size[line.size] >= n, "QueueLimit: more leave than wait");
    size_ -= n;
    own->second.by_size[line.size] -= n;
    if ((own->second.all -= n) == 0) counts_.erase(own);
  }

 private:
  /// Sequences that wait.
  struct Counts {
    std::int64_t all = 0;
    std::array<std::int64_t, FairQueue::kSizes> by_size{};
  };

  const std::int64_t limit_;
  std::int64_t size_ = 0;
  std::map<std::int32_t, Counts> counts_;  ///< by tenant; none has 0 in all
};

}  // namespace baton
