/// Chooses the number of pieces of each run of a plan, so that all workers end at about the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

/// A run, or tiles of a run that are cut alike. Times are one worker's, for one KV head.
struct CutRun {
  std::int32_t n_keys = 0;
  std::int32_t max_pieces = 1;
  std::int32_t pairs_a_piece = 1;  ///< number of (item, KV head) pairs of each piece
  double key_us = 0;
  double fixed_us = 0;    ///< for each pair
  double partial_us = 0;  ///< additionally for each pair that writes a partial state
  bool always_partial = false;
  std::int32_t n_pieces = 1;  ///< the result
};

/// Lengths of pieces are multiples of this many positions (except for a run's last piece).
inline constexpr std::int32_t kCutGrain = 64;

struct CutResult {
  double busy_us = 0;      ///< time of all pairs divided by the number of workers
  double makespan_us = 0;  ///< when the last worker ends
};

/// Simulates workers: each pair goes to the worker that is free first. Loads are counted in 1024ths of a limit.
class RunCutter {
 public:
  /// Sets n_pieces of each run; runs stand in the order in which they start. First tries to end within 4% of the
  /// evenly divided time (or of the longest piece that cannot be cut), then within larger limits, with the fewest
  /// pieces of each run that fit. `coarser` > 1 raises the limits. Cost: O(pairs / n_workers) for each run.
  CutResult cut(std::span<CutRun> runs, std::int32_t n_workers, double coarser);

 private:
  /// Cuts every run so that all workers end below the limit and no piece takes more than limit / n_rounds. Returns
  /// false if a run cannot be cut so (`must_fit`).
  bool try_limit(std::span<CutRun> runs, double limit_us, std::int32_t n_rounds, bool must_fit);
  bool fits(std::int64_t n_pairs, std::int32_t cost) const;
  void place(std::int64_t n_pairs, std::int32_t cost);
  std::int32_t in_levels(double us) const;

  std::int32_t n_workers_ = 1;
  double level_us_ = 1;
  std::int32_t next_level(std::int32_t from) const;
  void add(std::int32_t level, std::int32_t n);
  void remove(std::int32_t level, std::int32_t n);

  std::vector<std::int32_t> n_at_;       ///< number of workers at each level of load
  std::vector<std::uint64_t> has_some_;  ///< a bit for each level: workers are at it
  std::int32_t lowest_ = 0;
  std::int32_t highest_ = 0;
};

}  // namespace baton
