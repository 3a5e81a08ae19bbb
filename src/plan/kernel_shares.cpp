/// The share of each kernel.
#include "plan/kernel_shares.h"

#include <algorithm>

namespace baton {

std::int32_t larger_share(const SharedWork& work, const LargerTiles& tiles) {
  const std::int32_t n_all = tiles.costs.row_tile_queries > 0 ? tiles.costs.n_workers : 0;
  std::int32_t best = 0;
  // What both must fall below: the time of one kernel for all, less the gain.
  double best_us = (tiles.smaller_ratio * work.larger_us + work.other_us) * (1 - tiles.least_gain);
  for (std::int32_t n = 1; n < n_all; ++n) {
    const double larger_us = work.larger_us * n_all / n + tiles.launch_us;
    const double other_us = work.other_us * n_all / (n_all - n);
    if (std::max(larger_us, other_us) < best_us) {
      best = n;
      best_us = std::max(larger_us, other_us);
    }
    if (other_us > larger_us) break;
  }
  return best;
}

}  // namespace baton
