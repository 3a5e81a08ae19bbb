/// The operations on rows of activations on a CUDA device: see the functions of the same names in kernels/ops.h.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// This, embedding and gather_rows read the step's sections through the uploaded header, so captured launches serve later
/// steps. A launch may cover more rows and samples than this header has: these rows are resolved as dead (token 0, no
/// keys), these samples are not written. A token id, row or slot outside its table stops the device.
void resolve_rows(const Device& device, const ResolveRowsArgs& args);
void embedding(const Device& device, const EmbeddingArgs& args);
void gather_rows(const Device& device, const GatherRowsArgs& args);

/// A row's bits do not depend on the number of rows.
void rms_norm(const Device& device, const RmsNormArgs& args);
void layer_norm(const Device& device, const LayerNormArgs& args);

/// Into a CudaKvStorage, in one launch. It reads rows and their KV indices from the uploaded step. The launch covers as
/// many rows as args.step.header has; a captured launch skips rows from the uploaded header's n_rows on. A position outside
/// the RoPE table or a KV index outside the storage is a bug of ours and stops the device.
void rope_append(const Device& device, const RopeAppendArgs& args);

/// A row's bits do not depend on the number of rows.
void norm_columns(const Device& device, const NormColumnsArgs& args);
/// As rope_append, into a CudaKvStorage without values. q must be aligned to 16 bytes.
void latent_append(const Device& device, const LatentAppendArgs& args);

/// A row's bits do not depend on the number of rows.
void gated_norm(const Device& device, const GatedNormArgs& args);
void sigmoid_gate(const Device& device, const SigmoidGateArgs& args);

void activation(const Device& device, const ActivationArgs& args);
void gated_activation(const Device& device, const GatedActivationArgs& args);

}  // namespace baton::cuda
