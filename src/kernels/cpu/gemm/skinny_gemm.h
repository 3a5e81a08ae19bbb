/// Skinny GEMM: matmuls of few rows. A weight is streamed once, in the layout that oneDNN packs, so both share one
/// copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/cpu/isa.h"

namespace baton::cpu {

/// Most rows of one skinny GEMM.
inline constexpr std::int64_t kMaxSkinnyRows = 32;
inline constexpr std::int64_t kPanelColumns = 64;
/// A step of a panel: a 4-byte word for each column.
inline constexpr std::int64_t kStepBytes = kPanelColumns * 4;

/// A weight [n, k] in panels of 64 columns n. A step is a 4-byte word of each column: in f32 its value at one k, in
/// bf16 its two values at 2 k and 2 k + 1. The word of column c of panel p at step s is at data + p * panel_stride + s
/// * step_stride + 4 c (strides in bytes). Words of columns from n on are readable but have no meaning; the bf16 value
/// after an odd k is 0.
struct PanelMatrix {
  const std::byte* data = nullptr;
  std::int64_t n = 0;
  std::int64_t n_steps = 0;
  std::int64_t panel_stride = 0;
  std::int64_t step_stride = 0;
};

/// out[r, c] = sum over steps of x's word times the weight's word, for the columns of panels [first_panel, end_panel).
///
///     x    n_rows rows of n_steps words, x_stride bytes apart
///     out  n_rows rows of weight.n f32, out_stride values apart
/// Each sum runs over the steps in order in one f32 accumulator, whatever the number of other rows.
struct SkinnyGemmTask {
  PanelMatrix weight;
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t n_rows = 0;  ///< at most kMaxSkinnyRows
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t first_panel = 0;
  std::int64_t end_panel = 0;
  bool adds = false;  ///< to what `out` holds; n is then whole panels
};
using SkinnyGemmKernel = void (*)(const SkinnyGemmTask& task);

extern const SkinnyGemmKernel kSkinnyGemmF32Baseline, kSkinnyGemmF32Avx2, kSkinnyGemmF32Avx512, kSkinnyGemmBf16Dot;

/// The kernel of an instruction set for weights of `dtype`; null if it has none (bf16 without dot products).
SkinnyGemmKernel skinny_gemm_kernel(CpuIsa isa, DType dtype);

/// Runs the kernel over all panels of each task's weight; each part of the parallel loop takes several panels.
void multiply_skinny(const Parallel& parallel, SkinnyGemmKernel kernel, std::span<const SkinnyGemmTask> tasks);

}  // namespace baton::cpu
