/// Multiplies each head's columns of x with our own GEMMs, which read them in place. All heads are parts of one parallel loop.
///
/// A head's matrix is too small for a loop of its own, and the sums of our GEMMs do not depend on the number of rows.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/gemm/skinny_gemm.h"
#include "kernels/cpu/gemm/tile_gemm.h"
#include "kernels/cpu/pages.h"

namespace baton::cpu {
namespace {

/// Matrices in panels, one after the other.
class CpuHeads final : public PackedHeads {
 public:
  /// The panels of a head from `first` on, and at most `n_columns` of their columns.
  PanelMatrix panels(std::int64_t head, std::int64_t first, std::int64_t n_columns) const {
    return {memory.data() + (head * n_panels + first) * panel_stride(), n_columns, n_steps, panel_stride(), kStepBytes};
  }
  std::int64_t panel_stride() const { return n_steps * kStepBytes; }

  Buffer memory;
  std::int64_t n_panels = 0;
  std::int64_t n_steps = 0;
  SkinnyGemmKernel kernel = nullptr;
  std::int64_t rows_at_once = kMaxSkinnyRows;  ///< rows of a part
};

/// Copies a matrix [n, k] into panels, which are zero.
void fill_panels(const ConstTensorView& weight, std::int64_t panel_stride, std::byte* panels) {
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(weight.dtype));
  const std::int64_t per_word = 4 / element_bytes;
  const std::byte* from = weight.data;
  for (std::int64_t column = 0; column < weight.shape[0]; ++column) {
    std::byte* const words = panels + column / kPanelColumns * panel_stride + column % kPanelColumns * 4;
    for (std::int64_t i = 0; i < weight.shape[1]; ++i, from += element_bytes)
      std::memcpy(words + i / per_word * kStepBytes + i % per_word * element_bytes, from,
                  static_cast<std::size_t>(element_bytes));
  }
}

/// The rows of x as words: head h of row r is at data + r * stride + h * head_stride, in bytes.
struct HeadWords {
  const std::byte* data;
  std::int64_t stride;
  std::int64_t head_stride;
};

/// x in place, or a copy in `memory` if heads do not consist of whole words: the element after a head's may be NaN.
HeadWords words_of(const HeadMatmulArgs& args, std::int64_t n_steps, std::vector<std::byte>& memory) {
  const std::int64_t n_heads = args.weights->n_heads;
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(args.x.dtype));
  const HeadWords in_place{args.x.data, args.x.shape[1] * element_bytes, args.x_stride * element_bytes};
  const std::int64_t head_bytes = args.weights->k * element_bytes;
  if (head_bytes % 4 == 0 && in_place.stride % 4 == 0 && in_place.head_stride % 4 == 0) return in_place;
  const HeadWords copied{nullptr, n_heads * n_steps * 4, n_steps * 4};
  memory.resize(static_cast<std::size_t>(args.x.shape[0] * copied.stride));
  for (std::int64_t r = 0; r < args.x.shape[0]; ++r)
    for (std::int64_t h = 0; h < n_heads; ++h)
      std::memcpy(memory.data() + r * copied.stride + h * copied.head_stride,
                  args.x.data + r * in_place.stride + h * in_place.head_stride, static_cast<std::size_t>(head_bytes));
  return {memory.data(), copied.stride, copied.head_stride};
}

}  // namespace

Result<std::unique_ptr<PackedHeads>> CpuBackend::pack_heads(const ConstTensorView& weights, std::string_view name) {
  check(weights.shape.rank() == 3, "pack_heads: weights [n_heads, n, k]");
  auto heads = std::make_unique<CpuHeads>();
  heads->n_heads = weights.shape[0];
  heads->n = weights.shape[1];
  heads->k = weights.shape[2];
  heads->dtype = weights.dtype;
  heads->kernel = skinny_gemm_kernel(isa_, weights.dtype);
  if (heads->kernel == nullptr)
    return fail(ErrorCode::unsupported,
                fmt::format("{}: this processor has no matmuls of {} ({}); weights must be float32", name,
                            to_string(weights.dtype), to_string(isa_)),
                "dtype");
  const auto per_word = static_cast<std::int64_t>(4 / size_bytes(weights.dtype));
  heads->n_panels = (heads->n + kPanelColumns - 1) / kPanelColumns;
  heads->n_steps = (heads->k + per_word - 1) / per_word;
  const std::int64_t head_bytes = heads->n_panels * heads->panel_stride();
  heads->size_bytes = static_cast<std::size_t>(heads->n_heads * head_bytes);
  BATON_TRY(heads->memory, allocate_pages(heads->size_bytes));
  // Another kernel has other roundings, so one of the two takes every number of rows.
  const SkinnyGemmKernel tiles = tile_gemm_kernel(isa_, weights.dtype);
  if (tiles != nullptr && fits_tiles(heads->panels(0, 0, heads->n))) {
    heads->kernel = tiles;
    heads->rows_at_once = 128;
  }
  parallel_.for_parts(heads->n_heads, [&](std::int64_t h, int) {
    fill_panels({weights.rows(h, h + 1).data, weights.dtype, {heads->n, heads->k}}, heads->panel_stride(),
                heads->memory.data() + h * head_bytes);
  });
  return std::unique_ptr<PackedHeads>(std::move(heads));
}

void CpuBackend::head_matmul(const HeadMatmulArgs& args) {
  constexpr std::int64_t kPartsPerThread = 8;
  const auto& heads = static_cast<const CpuHeads&>(*args.weights);
  const std::int64_t n_rows = args.x.shape[0];
  const std::int64_t out_stride = args.out.shape[2];
  if (n_rows == 0) return;
  std::vector<std::byte> copy;
  const HeadWords x = words_of(args, heads.n_steps, copy);
  const std::int64_t n_row_groups = (n_rows + heads.rows_at_once - 1) / heads.rows_at_once;
  const std::int64_t n_cuts =
      std::clamp<std::int64_t>(kPartsPerThread * parallel_.n_threads() / (heads.n_heads * n_row_groups), 1, heads.n_panels);
  parallel_.for_parts(heads.n_heads * n_cuts * n_row_groups, [&](std::int64_t part, int) {
    const std::int64_t head = part / (n_cuts * n_row_groups);
    const std::int64_t cut = part / n_row_groups % n_cuts;
    const std::int64_t first_row = part % n_row_groups * heads.rows_at_once;
    const std::int64_t first_panel = heads.n_panels * cut / n_cuts;
    const std::int64_t first = first_panel * kPanelColumns;
    SkinnyGemmTask task;
    task.end_panel = heads.n_panels * (cut + 1) / n_cuts - first_panel;
    task.weight = heads.panels(head, first_panel, std::min(heads.n - first, task.end_panel * kPanelColumns));
    task.x = x.data + first_row * x.stride + head * x.head_stride;
    task.x_stride = x.stride;
    task.n_rows = std::min(heads.rows_at_once, n_rows - first_row);
    const std::int64_t row_stride = heads.n_heads * out_stride;
    const std::int64_t at = first_row * row_stride + head * out_stride + first;
    if (args.out.dtype == DType::f32) {
      task.out = args.out.elements<float>().data() + at;
      task.out_stride = row_stride;
      heads.kernel(task);
      return;
    }
    std::vector<float> sums(static_cast<std::size_t>(task.n_rows * task.weight.n));
    task.out = sums.data();
    task.out_stride = task.weight.n;
    heads.kernel(task);
    for (std::int64_t r = 0; r < task.n_rows; ++r)
      store_f32(sums.data() + r * task.weight.n, task.weight.n, args.out, at + r * row_stride);
  });
}

}  // namespace baton::cpu
