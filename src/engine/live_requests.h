/// The requests that have not ended, and when their sequences must end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/ids.h"
#include "engine/schedule/sequence.h"

namespace baton {

/// Thread: engine only.
class LiveRequests {
 public:
  using Time = Sequence::Clock::time_point;

  /// Adds a sequence of a request. Those of a request are added before any of them is removed.
  void add(const SequenceTask& task) {
    Live& request = requests_[task.request];
    request.sequences.push_back(task.id);
    ++request.n_unfinished;
    if (task.deadline) deadlines_.emplace(*task.deadline, task.id);
  }
  /// Removes a sequence that has generated `n_generated` tokens. If it is the last of its request, returns the tokens of the
  /// request's longest sequence.
  std::optional<std::int32_t> remove(const SequenceTask& task, std::int32_t n_generated) {
    if (task.deadline) deadlines_.erase({*task.deadline, task.id});
    const auto request = requests_.find(task.request);
    check(request != requests_.end(), "LiveRequests: a sequence without a request");
    const std::int32_t n_most = request->second.n_generated = std::max(request->second.n_generated, n_generated);
    if (--request->second.n_unfinished > 0) return std::nullopt;
    requests_.erase(request);
    return n_most;
  }
  /// The sequences of a request, with the removed ones; none if the request has ended.
  std::span<const SequenceId> sequences_of(RequestId request) const {
    const auto at = requests_.find(request);
    return at == requests_.end() ? std::span<const SequenceId>() : at->second.sequences;
  }
  /// Returns a sequence whose deadline has passed, once.
  std::optional<SequenceId> take_expired(Time now) {
    if (deadlines_.empty() || deadlines_.begin()->first > now) return std::nullopt;
    return deadlines_.extract(deadlines_.begin()).value().second;
  }

 private:
  struct Live {
    std::vector<SequenceId> sequences;
    std::int32_t n_unfinished = 0;
    std::int32_t n_generated = 0;  ///< tokens of the longest sequence that has ended
  };

  std::map<RequestId, Live> requests_;
  std::set<std::pair<Time, SequenceId>> deadlines_;
};

}  // namespace baton
