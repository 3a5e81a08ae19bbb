/// The edges of the decoder on a CUDA device: rows resolved against the slot table, tokens to vectors, rows chosen for
/// logits.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See the functions of the same names in kernels/ops.h. The step's sections are read from the uploaded header, so
/// recorded launches serve the steps to come; rows and orders of the launch beyond that header's are resolved as dead
/// (token 0, no keys) and left alone. A token id, row or slot outside its table stops the device.
void resolve_rows(const Device& device, const ResolveRowsArgs& args);
void embedding(const Device& device, const EmbeddingArgs& args);
void gather_rows(const Device& device, const GatherRowsArgs& args);

}  // namespace baton::cuda
