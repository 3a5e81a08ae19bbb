/// How two attention kernels that run at the same time share a device.
#pragma once

#include <cstdint>

#include "kernels/attention_costs.h"

namespace baton {

/// The work of a step. Each time is that of the whole device, in microseconds.
struct SharedWork {
  double larger_us = 0;  ///< of the kernel with larger tiles, for the runs that it may take
  double other_us = 0;   ///< of the other kernel, for all other runs
};

/// How many of their workers larger tiles get so that both kernels end together; the other kernel gets the part of the
/// device that is left. 0: less than least_gain of the time of one kernel for all runs would be saved.
std::int32_t larger_share(const SharedWork& work, const LargerTiles& tiles);

}  // namespace baton
