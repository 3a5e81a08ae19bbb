/// Chooses the tile GEMM's kernel and cuts a matmul into parts.
#include "kernels/cpu/gemm/tile_gemm.h"

#include <algorithm>

namespace baton::cpu {

bool fits_tiles(const PanelMatrix& weight) {
  constexpr std::int64_t kStepsOfTile = 16;
  return weight.data != nullptr && weight.step_stride == kStepBytes && weight.n_steps % kStepsOfTile == 0;
}

SkinnyGemmKernel tile_gemm_kernel(CpuIsa isa, DType dtype) {
  return isa >= CpuIsa::amx_bf16 && dtype == DType::bf16 ? kTileGemm : nullptr;
}

void multiply_tiles(const Parallel& parallel, SkinnyGemmKernel kernel, std::span<const SkinnyGemmTask> tasks) {
  // 256 rows of 2048 values take half of a second-level cache; every panel reads them again from there.
  constexpr std::int64_t kRowsAtOnce = 256;
  constexpr std::int64_t kPartsPerThread = 8;
  constexpr std::int64_t kMostPanelsAtOnce = 4;
  const auto n_panels = [](const SkinnyGemmTask& task) { return (task.weight.n + kPanelColumns - 1) / kPanelColumns; };
  std::int64_t all_panels = 0;
  std::int64_t most_panels = 0;
  std::int64_t most_rows = 0;
  for (const SkinnyGemmTask& task : tasks) {
    all_panels += n_panels(task);
    most_panels = std::max(most_panels, n_panels(task));
    most_rows = std::max(most_rows, task.n_rows);
  }
  const std::int64_t n_row_cuts = (most_rows + kRowsAtOnce - 1) / kRowsAtOnce;
  const std::int64_t at_once =
      std::clamp<std::int64_t>(all_panels * n_row_cuts / (kPartsPerThread * parallel.n_threads()), 1, kMostPanelsAtOnce);
  const std::int64_t n_panel_cuts = (most_panels + at_once - 1) / at_once;
  const std::int64_t n_cuts = n_panel_cuts * n_row_cuts;
  parallel.for_parts(static_cast<std::int64_t>(tasks.size()) * n_cuts, [&](std::int64_t part, int) {
    SkinnyGemmTask share = tasks[static_cast<std::size_t>(part / n_cuts)];
    const std::int64_t panel_cut = part % n_cuts / n_row_cuts;
    const std::int64_t all = n_panels(share);
    share.first_panel = all * panel_cut / n_panel_cuts;
    share.end_panel = all * (panel_cut + 1) / n_panel_cuts;
    const std::int64_t first_row = part % n_row_cuts * kRowsAtOnce;
    share.n_rows = std::min(kRowsAtOnce, share.n_rows - first_row);
    if (share.first_panel >= share.end_panel || share.n_rows <= 0) return;
    share.x += first_row * share.x_stride;
    share.out += first_row * share.out_stride;
    kernel(share);
  });
}

}  // namespace baton::cpu
