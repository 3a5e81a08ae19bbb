/// Into how many pieces each run of a plan is cut so that all workers end together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

/// A run (or the tiles of one that are cut alike) to be shared out: one worker's times, for one KV head.
struct CutRun {
  std::int32_t n_keys = 0;
  std::int32_t max_pieces = 1;
  std::int32_t pairs_a_piece = 1;  ///< (item, KV head) pairs that each piece makes
  double key_us = 0;
  double fixed_us = 0;    ///< of each pair
  double partial_us = 0;  ///< more for each pair that leaves a partial state
  bool always_partial = false;
  std::int32_t n_pieces = 1;  ///< the result
};

/// Positions that pieces are multiples of (a run's last piece excepted).
inline constexpr std::int32_t kCutGrain = 64;

struct CutResult {
  double busy_us = 0;      ///< all pairs' time over the number of workers
  double makespan_us = 0;  ///< when the last worker ends
};

/// Workers as loads: the next pair goes to the one that is free first. Loads are counted in 1024ths of a limit.
class RunCutter {
 public:
  /// Chooses n_pieces of each run, in the order in which they will be started. Tries to end within 4% of the evenly shared time
  /// (or of the longest piece that cannot be cut), then within more, and takes the fewest pieces of each run that fit.
  /// `coarser` > 1 loosens that. Cost: a run costs little more than its pieces' pairs over the workers.
  CutResult cut(std::span<CutRun> runs, std::int32_t n_workers, double coarser);

 private:
  /// Cuts every run so that all ends under the limit and no piece takes more than a part of it, n_rounds to the whole; false if
  /// some run cannot be (`must_fit`).
  bool try_limit(std::span<CutRun> runs, double limit_us, std::int32_t n_rounds, bool must_fit);
  bool fits(std::int64_t n_pairs, std::int32_t cost) const;
  void place(std::int64_t n_pairs, std::int32_t cost);
  std::int32_t in_levels(double us) const;

  std::int32_t n_workers_ = 1;
  double level_us_ = 1;
  std::vector<std::int32_t> n_at_;  ///< workers at each level of load
  std::int32_t lowest_ = 0;
  std::int32_t highest_ = 0;
};

}  // namespace baton
