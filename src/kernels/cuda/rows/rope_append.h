/// Rotates queries and keys and stores keys and values on a CUDA device.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// ops.h: rope_append, into a CudaKvStorage, in one launch. It reads rows and their KV indices from the uploaded step.
/// The launch covers as many rows as args.step.header has; a captured launch skips rows from the uploaded header's
/// n_rows on. A position outside the RoPE table or a KV index outside the storage is a bug of ours and stops the
/// device.
void rope_append(const Device& device, const RopeAppendArgs& args);

}  // namespace baton::cuda
