/// Matmuls of bf16 by the tiles of AMX, for any number of rows, over the panels that oneDNN packs and the skinny GEMM
/// reads.
#pragma once

#include <span>

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/skinny_gemm.h"

namespace baton::cpu {

/// Weights in panels whose steps are contiguous, with a whole number of tiles along k.
bool fits_tiles(const PanelMatrix& weight);

extern const SkinnyGemmKernel kTileGemm;

/// The kernel of an instruction set for weights of `dtype`; null if it has none. It takes any number of rows and
/// multiplies weights that fit tiles. Each sum runs over k in order, 32 numbers at a time, whatever the number of rows
/// beside it.
SkinnyGemmKernel tile_gemm_kernel(CpuIsa isa, DType dtype);

/// Runs the kernel over all panels and rows of each task, some of both a part of the loop.
void multiply_tiles(const Parallel& parallel, SkinnyGemmKernel kernel, std::span<const SkinnyGemmTask> tasks);

}  // namespace baton::cpu
