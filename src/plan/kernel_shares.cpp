/// The share of each kernel.
#include "plan/kernel_shares.h"

#include <algorithm>

namespace baton {

std::int32_t wide_share(const SharedWork& work, const AttentionCosts& costs) {
  const std::int32_t n_all = costs.n_wide_workers;
  std::int32_t best = 0;
  // What both must fall below: the time of one kernel for all, less the gain.
  double best_us = (costs.narrow_ratio * work.wide_us + work.other_us) * (1 - costs.wide_gain);
  for (std::int32_t n = 1; n < n_all; ++n) {
    const double wide_us = work.wide_us * n_all / n + costs.wide_launch_us;
    const double other_us = work.other_us * n_all / (n_all - n);
    if (std::max(wide_us, other_us) < best_us) {
      best = n;
      best_us = std::max(wide_us, other_us);
    }
    if (other_us > wide_us) break;
  }
  return best;
}

}  // namespace baton
