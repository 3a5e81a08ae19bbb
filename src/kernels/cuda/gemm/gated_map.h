/// Weights of gated feed-forward blocks as the GEMMs with a gate read them: rows of gate and of up in turn.
#pragma once

#include <optional>

#include <cuda.h>

#include "core/tensor.h"

namespace baton::cuda {

/// Rows of gate, and then of up, in tiles whose rows are wgmma's N.
inline constexpr int kGatedRunOfN = 4;

/// Describes a weight [n, k] of bf16 or f16, whose first n / 2 rows are gate and the others up, to copies of boxes of `n_rows`
/// rows and kBoxK columns: `run` rows of gate, the same rows of up, the next of gate, and so on. n and n_rows are multiples of
/// 2 run; the weight and its rows are aligned to 16 bytes. Nothing where the driver refuses.
std::optional<CUtensorMap> gated_map(void* encode, const ConstTensorView& weight, int n_rows, int run);

/// The gates (GateKind) that GEMMs have.
enum class FusedGate { silu, gelu_tanh };

}  // namespace baton::cuda
