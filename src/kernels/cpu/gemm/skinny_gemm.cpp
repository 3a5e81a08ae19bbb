/// Chooses the skinny GEMM's kernel and cuts a matmul into parts.
#include "kernels/cpu/gemm/skinny_gemm.h"

#include <algorithm>

namespace baton::cpu {

SkinnyGemmKernel skinny_gemm_kernel(CpuIsa isa, DType dtype) {
  if (dtype == DType::bf16) return isa >= CpuIsa::avx512_bf16 ? kSkinnyGemmBf16Dot : nullptr;
  if (dtype != DType::f32) return nullptr;
  switch (isa) {
    case CpuIsa::baseline: return kSkinnyGemmF32Baseline;
    case CpuIsa::avx2: return kSkinnyGemmF32Avx2;
    case CpuIsa::avx512:
    case CpuIsa::avx512_bf16:
    case CpuIsa::amx_bf16: return kSkinnyGemmF32Avx512;
  }
  return nullptr;
}

void multiply_skinny(const Parallel& parallel, SkinnyGemmKernel kernel, std::span<const SkinnyGemmTask> tasks) {
  constexpr std::int64_t kPanelsAtOnce = 16;
  const auto n_panels = [](const SkinnyGemmTask& task) { return (task.weight.n + kPanelColumns - 1) / kPanelColumns; };
  std::int64_t most_panels = 0;
  for (const SkinnyGemmTask& task : tasks) most_panels = std::max(most_panels, n_panels(task));
  const std::int64_t n_cuts = (most_panels + kPanelsAtOnce - 1) / kPanelsAtOnce;
  parallel.for_parts(static_cast<std::int64_t>(tasks.size()) * n_cuts, [&](std::int64_t part, int) {
    SkinnyGemmTask share = tasks[static_cast<std::size_t>(part / n_cuts)];
    const std::int64_t all = n_panels(share);
    share.first_panel = all * (part % n_cuts) / n_cuts;
    share.end_panel = all * (part % n_cuts + 1) / n_cuts;
    if (share.first_panel < share.end_panel) kernel(share);
  });
}

}  // namespace baton::cpu
