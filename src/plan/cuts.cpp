/// Fills workers greedily below a limit, which is raised until everything fits.
#include "plan/cuts.h"

#include <algorithm>
#include <bit>

namespace baton {
namespace {

constexpr std::int32_t kLimitLevels = 1024;
constexpr std::int32_t kMostCutLevels = 4 * kLimitLevels;

std::int32_t n_stages(const CutRun& run) { return (run.n_keys + kCutGrain - 1) / kCutGrain; }

/// Time of the longest piece if the run has `n_pieces`.
double piece_us(const CutRun& run, std::int32_t n_pieces) {
  if (n_pieces == 1) return run.key_us * run.n_keys + run.fixed_us + (run.always_partial ? run.partial_us : 0);
  const std::int32_t stages = (n_stages(run) + n_pieces - 1) / n_pieces;
  const double keys_us = run.key_us * std::min(run.n_keys, stages * kCutGrain);
  return keys_us + run.fixed_us + (n_pieces > 1 || run.always_partial ? run.partial_us : 0);
}

double run_us(const CutRun& run, std::int32_t n_pieces) {
  const double piece_fixed_us = run.fixed_us + (n_pieces > 1 || run.always_partial ? run.partial_us : 0);
  return (run.key_us * run.n_keys + piece_fixed_us * n_pieces) * run.pairs_a_piece;
}

}  // namespace

std::int32_t RunCutter::in_levels(double us) const {
  return static_cast<std::int32_t>(std::clamp(us / level_us_ + 0.5, 1.0, 1.0 * kMostCutLevels));
}

/// The lowest level from `from` on at which workers are. There must be one.
std::int32_t RunCutter::next_level(std::int32_t from) const {
  auto word = static_cast<std::size_t>(from) / 64;
  std::uint64_t bits = has_some_[word] >> (from % 64) << (from % 64);
  while (bits == 0) bits = has_some_[++word];
  return static_cast<std::int32_t>(word * 64) + std::countr_zero(bits);
}

void RunCutter::add(std::int32_t level, std::int32_t n) {
  n_at_[static_cast<std::size_t>(level)] += n;
  has_some_[static_cast<std::size_t>(level) / 64] |= std::uint64_t{1} << (level % 64);
}

void RunCutter::remove(std::int32_t level, std::int32_t n) {
  if ((n_at_[static_cast<std::size_t>(level)] -= n) == 0)
    has_some_[static_cast<std::size_t>(level) / 64] &= ~(std::uint64_t{1} << (level % 64));
}

/// Whether n_pairs more pairs of `cost` each all end below the limit.
bool RunCutter::fits(std::int64_t n_pairs, std::int32_t cost) const {
  std::int64_t capacity = 0;
  for (std::int32_t level = next_level(lowest_); level + cost <= kLimitLevels; level = next_level(level + 1)) {
    capacity += static_cast<std::int64_t>(n_at_[static_cast<std::size_t>(level)]) * ((kLimitLevels - level) / cost);
    if (capacity >= n_pairs) return true;
  }
  return false;
}

void RunCutter::place(std::int64_t n_pairs, std::int32_t cost) {
  while (n_pairs > 0) {
    lowest_ = next_level(lowest_);
    const std::int32_t to = lowest_ + cost;
    if (to > kMostCutLevels) {  // beyond the levels that are counted: the limit is exceeded anyway
      highest_ = kMostCutLevels;
      return;
    }
    const auto n = static_cast<std::int32_t>(std::min<std::int64_t>(n_at_[static_cast<std::size_t>(lowest_)], n_pairs));
    remove(lowest_, n);
    add(to, n);
    highest_ = std::max(highest_, to);
    n_pairs -= n;
  }
}

bool RunCutter::try_limit(std::span<CutRun> runs, double limit_us, std::int32_t n_rounds, bool must_fit) {
  level_us_ = limit_us / kLimitLevels;
  n_at_.resize(kMostCutLevels + 1);
  std::fill(n_at_.begin(), n_at_.begin() + highest_ + 1, 0);
  // The bit after the levels ends every search.
  has_some_.assign(kMostCutLevels / 64 + 2, 0);
  has_some_.back() = 1;
  add(0, n_workers_);
  lowest_ = 0;
  highest_ = 0;
  for (CutRun& run : runs) {
    const std::int32_t stages = n_stages(run);
    const std::int32_t most = std::clamp(run.max_pieces, 1, stages);
    lowest_ = next_level(lowest_);
    const double room_us = std::min(limit_us / n_rounds, (kLimitLevels - lowest_) * level_us_);
    run.n_pieces = 1;
    while (run.n_pieces < most) {
      const double us = piece_us(run, run.n_pieces);
      if (us <= room_us && fits(static_cast<std::int64_t>(run.n_pieces) * run.pairs_a_piece, in_levels(us))) break;
      // The next number of pieces whose longest piece is a stage shorter, or short enough to fit at all.
      std::int32_t shorter = (stages + run.n_pieces - 1) / run.n_pieces - 1;
      const double room_stages = (room_us - run.fixed_us - run.partial_us) / (run.key_us * kCutGrain);
      if (room_stages < shorter) shorter = static_cast<std::int32_t>(std::max(1.0, room_stages));
      run.n_pieces = std::min(most, (stages + shorter - 1) / shorter);
    }
    const std::int32_t cost = in_levels(piece_us(run, run.n_pieces));
    const std::int64_t n_pairs = static_cast<std::int64_t>(run.n_pieces) * run.pairs_a_piece;
    if (must_fit && run.n_pieces == most && !fits(n_pairs, cost)) return false;
    place(n_pairs, cost);
  }
  return true;
}

CutResult RunCutter::cut(std::span<CutRun> runs, std::int32_t n_workers, double coarser) {
  if (runs.empty()) return {};
  n_workers_ = n_workers;
  // Lower bound: the evenly divided time of the pieces that this bound itself requires, or the longest piece.
  double whole_us = 0;    // time of the longest run
  double longest_us = 0;  // time of the longest piece
  double even_us = 0;
  for (const CutRun& run : runs) {
    whole_us = std::max(whole_us, piece_us(run, 1));
    longest_us = std::max(longest_us, piece_us(run, std::clamp(run.max_pieces, 1, n_stages(run))));
    even_us += run_us(run, 1) / n_workers;
  }
  double bound_us = std::max(even_us, longest_us);
  for (int round = 0; round < 2 && whole_us > bound_us; ++round) {
    even_us = 0;
    for (const CutRun& run : runs) {
      const auto n = static_cast<std::int32_t>(std::min(piece_us(run, 1) / bound_us, 1.0 * run.max_pieces));
      even_us += run_us(run, std::max(1, n)) / n_workers;
    }
    bound_us = std::max(even_us, longest_us);
  }
  bound_us *= coarser;
  bool found = false;
  for (const double limit : {1.04, 1.06, 1.08, 1.11, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.7, 2.0})
    for (const std::int32_t n_rounds : {1, 2, 3})
      if (!found) found = try_limit(runs, bound_us * limit, n_rounds, true);
  if (!found) try_limit(runs, bound_us * 2, 1, false);
  CutResult result;
  for (const CutRun& run : runs) result.busy_us += run_us(run, run.n_pieces) / n_workers;
  result.makespan_us = highest_ * level_us_;
  return result;
}

}  // namespace baton
