/// The operations before and after the layers on a CUDA device: rows resolved with the slot table, token embedding,
/// selection of rows for logits.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See the functions of the same names in kernels/ops.h. They read the step's sections through the uploaded header, so
/// captured launches serve later steps. A launch may cover more rows and samples than this header has: these rows are
/// resolved as dead (token 0, no keys), these samples are not written. A token id, row or slot outside its table stops
/// the device.
void resolve_rows(const Device& device, const ResolveRowsArgs& args);
void embedding(const Device& device, const EmbeddingArgs& args);
void gather_rows(const Device& device, const GatherRowsArgs& args);

}  // namespace baton::cuda
