/// How two attention kernels that run at the same time share a device.
#pragma once

#include <cstdint>

#include "kernels/attention_costs.h"

namespace baton {

/// The work of a step. Each time is that of the whole device, in microseconds.
struct SharedWork {
  double wide_us = 0;   ///< of the kernel with wide tiles, for the runs that it may take
  double other_us = 0;  ///< of the other kernel, for all other runs
};

/// How many of the n_wide_workers the kernel with wide tiles gets so that both kernels end together; the other kernel gets
/// the multiprocessors that are left. 0: less than wide_gain of the time of one kernel for all runs would be saved.
std::int32_t wide_share(const SharedWork& work, const AttentionCosts& costs);

}  // namespace baton
