/// Rotation of queries and keys and the writing of keys and values on a CUDA device.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// ops.h: rope_append, into a CudaKvStorage, in one launch. Rows and their KV indices are read from the uploaded step,
/// of which the launch covers as many rows as args.step.header says; a recorded launch leaves rows beyond the uploaded
/// header's n_rows alone. A position beyond the table of angles or a KV index beyond the storage stops the device: it
/// is a bug of ours.
void rope_append(const Device& device, const RopeAppendArgs& args);

}  // namespace baton::cuda
