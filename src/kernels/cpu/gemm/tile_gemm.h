/// Tile GEMM: bf16 matmuls by AMX tiles, for any number of rows, over the panels that oneDNN packs and the skinny GEMM
/// reads.
#pragma once

#include <span>

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/cpu/gemm/skinny_gemm.h"
#include "kernels/cpu/isa.h"

namespace baton::cpu {

/// Whether the weight's panels have contiguous steps and a whole number of tiles along k.
bool fits_tiles(const PanelMatrix& weight);

extern const SkinnyGemmKernel kTileGemm;

/// The kernel of an instruction set for weights of `dtype`; null if there is none. It takes any number of rows and
/// weights that fit tiles. Each sum runs over k in order, 32 values at a time, whatever the number of other rows.
SkinnyGemmKernel tile_gemm_kernel(CpuIsa isa, DType dtype);

/// Runs the kernel over all panels and rows of each task; each part of the parallel loop takes some of both.
void multiply_tiles(const Parallel& parallel, SkinnyGemmKernel kernel, std::span<const SkinnyGemmTask> tasks);

}  // namespace baton::cpu
