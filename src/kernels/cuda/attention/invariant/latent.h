/// Attention over latent vectors in batch-invariant mode: a row's bits depend on nothing but the row and its keys. sm_90a only.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Bytes of the memory that launches on this device take for the states of chunks. It need not be cleared.
std::size_t latent_state_bytes(const Device& device);

/// `dtype`, bf16 or f16, and `latent_dim`, 256 or 512, are those of the storage. `states`: latent_state_bytes.
void latent_invariant_attention(const AttentionParams& params, DType dtype, int latent_dim, std::byte* states,
                                const Device& device);

}  // namespace baton::cuda
