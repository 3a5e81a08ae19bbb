/// Packs weights of 8 and 4 bits in panels, and multiplies panel by panel.
#include "kernels/cpu/scheme_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/widen.h"

namespace baton::cpu {
namespace {

/// Columns k that are widened at once: 32 KB of f32, half as much of bf16.
constexpr std::int64_t kBlockColumns = 128;
/// Rows for which a tile is widened once; with more rows it is widened again.
constexpr std::int64_t kRowsAtOnce = 128;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

/// A weight in panels of kPanelColumns outputs, as PackedSteps describes them, one panel after the other.
class SchemeMatrix final : public PackedMatrix {
 public:
  std::int64_t values_per_word() const { return dtype == DType::bf16 ? 2 : 1; }
  std::int64_t n_panels() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  std::int64_t n_steps() const { return (k + values_per_word() - 1) / values_per_word(); }
  /// Also of the second step of the last pair of i4.
  std::int64_t panel_bytes() const { return round_up(n_steps(), 2) * packed_step_bytes(scheme, dtype); }
  std::int64_t n_scales() const { return (n + scale_rows - 1) / scale_rows; }
  std::int64_t n_groups() const { return (k + scale_columns - 1) / scale_columns; }

  Buffer values;
  Buffer scales;  ///< [n_groups, n_scales] of scale_dtype
  DType scale_dtype = DType::f32;
  std::vector<std::uint8_t> zeros;  ///< [n_groups, n], or empty
  std::vector<std::int32_t> permutation;
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 1;
};

namespace {

/// Value c of a row, as 8 bits.
std::uint8_t value_at(const StoredMatrix& weight, std::int64_t row, std::int64_t c) {
  const auto* values = reinterpret_cast<const std::uint8_t*>(weight.values.data) + row * weight.values.shape[1];
  if (weight.scheme != WeightScheme::i4) return values[c];
  return (values[c / 2] >> (4 * (c % 2))) & 15;
}

void pack_panel(const StoredMatrix& weight, const SchemeMatrix& matrix, std::int64_t panel) {
  const std::int64_t per_word = matrix.values_per_word();
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t n_columns = std::min(kPanelColumns, matrix.n - first);
  const std::int64_t step_values = kPanelColumns * per_word;
  auto* const packed = reinterpret_cast<std::uint8_t*>(matrix.values.data()) + panel * matrix.panel_bytes();
  for (std::int64_t c = 0; c < matrix.k; ++c) {
    const std::int64_t step = c / per_word;
    const bool is_i4 = matrix.scheme == WeightScheme::i4;
    std::uint8_t* const to = packed + (is_i4 ? step / 2 : step) * step_values + c % per_word;
    const int shift = is_i4 ? static_cast<int>(step % 2) * 4 : 0;
    for (std::int64_t i = 0; i < n_columns; ++i)
      to[i * per_word] = static_cast<std::uint8_t>(to[i * per_word] | value_at(weight, first + i, c) << shift);
  }
}

/// Writes `in` [rows, columns] of `size` bytes an element as [columns, rows].
void transpose(const std::byte* in, std::int64_t rows, std::int64_t columns, std::size_t size, std::byte* out) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      std::memcpy(out + static_cast<std::size_t>(c * rows + r) * size, in + static_cast<std::size_t>(r * columns + c) * size,
                  size);
}

}  // namespace

SchemeGemm::SchemeGemm(const Parallel& parallel, CpuIsa isa)
    : parallel_(parallel), isa_(isa), lanes_(static_cast<std::size_t>(parallel.n_threads())) {}

Result<std::unique_ptr<PackedMatrix>> SchemeGemm::pack(const StoredMatrix& weight, DType dtype, std::string_view name) {
  check_stored(weight);
  check(dtype == DType::f32 || dtype == DType::bf16, "pack_matrix: matmuls are in f32 or bf16");
  auto matrix = std::make_unique<SchemeMatrix>();
  matrix->n = weight.shape[0];
  matrix->k = weight.shape[1];
  matrix->dtype = dtype;
  matrix->scheme = weight.scheme;
  matrix->scale_rows = weight.scale_rows;
  matrix->scale_columns = std::min(weight.scale_columns, matrix->k);
  matrix->scale_dtype = weight.scales.dtype;
  auto values = allocate_pages(static_cast<std::size_t>(matrix->n_panels() * matrix->panel_bytes()));
  auto scales = allocate_pages(weight.scales.size_bytes());
  if (!values || !scales)
    return fail(ErrorCode::out_of_memory, fmt::format("{}: no memory for {} bytes of packed weights", name,
                                                      weight.values.size_bytes() + weight.scales.size_bytes()));
  matrix->values = std::move(*values);
  matrix->scales = std::move(*scales);
  parallel_.for_ranges(matrix->n_panels(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel) pack_panel(weight, *matrix, panel);
  });
  transpose(weight.scales.data, matrix->n_scales(), matrix->n_groups(), size_bytes(matrix->scale_dtype), matrix->scales.data());
  if (weight.zeros.data != nullptr) {
    matrix->zeros.resize(weight.zeros.size_bytes());
    transpose(weight.zeros.data, matrix->n, matrix->n_groups(), 1, reinterpret_cast<std::byte*>(matrix->zeros.data()));
  }
  if (weight.permutation.data != nullptr) {
    const auto order = weight.permutation.elements<std::int32_t>();
    for (const std::int32_t column : order) check(column >= 0 && column < matrix->k, "pack_matrix: a permutation outside x");
    matrix->permutation.assign(order.begin(), order.end());
  }
  matrix->size_bytes = matrix->values.size_bytes() + matrix->scales.size_bytes() + matrix->zeros.size() +
                       matrix->permutation.size() * sizeof(std::int32_t);
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

/// x with its columns in the weight's order, and with whole words in each row: [rows, n_steps words].
ConstTensorView SchemeGemm::prepare_x(const ConstTensorView& x, const SchemeMatrix& matrix) {
  constexpr std::int64_t kRowsPerTask = 16;
  const std::int64_t width = matrix.n_steps() * matrix.values_per_word();
  if (matrix.permutation.empty() && width == matrix.k) return x;
  const std::size_t size = size_bytes(x.dtype);
  prepared_x_.assign(static_cast<std::size_t>(x.shape[0] * width) * size, std::byte{0});
  parallel_.for_ranges(x.shape[0], kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::byte* const from = x.data + static_cast<std::size_t>(row * matrix.k) * size;
      std::byte* const to = prepared_x_.data() + static_cast<std::size_t>(row * width) * size;
      if (matrix.permutation.empty()) {
        std::memcpy(to, from, static_cast<std::size_t>(matrix.k) * size);
        continue;
      }
      for (std::size_t c = 0; c < matrix.permutation.size(); ++c)
        std::memcpy(to + c * size, from + static_cast<std::size_t>(matrix.permutation[c]) * size, size);
    }
  });
  return {prepared_x_.data(), x.dtype, {x.shape[0], width}};
}

/// lane.sums += x W^T over the columns of one scale.
void SchemeGemm::add_group(const ConstTensorView& x, const SchemeMatrix& matrix, std::int64_t panel, std::int64_t group,
                           Lane& lane) const {
  const std::int64_t per_word = matrix.values_per_word();
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t n_columns = std::min(kPanelColumns, matrix.n - first);
  const std::int64_t begin = group * matrix.scale_columns;
  const std::int64_t end = std::min(matrix.k, begin + matrix.scale_columns);
  for (std::int64_t i = 0; !matrix.zeros.empty() && i < n_columns * per_word; ++i)
    lane.zeros[static_cast<std::size_t>(i)] = matrix.zeros[static_cast<std::size_t>(group * matrix.n + first + i / per_word)];
  PackedSteps steps{matrix.scheme, matrix.dtype, nullptr, lane.zeros.data(), 0};
  SkinnyGemmTask task;
  task.weight = {reinterpret_cast<const std::byte*>(lane.words.data()), kPanelColumns, 0, 0, kStepBytes};
  task.x_stride = static_cast<std::int64_t>(x.size_bytes()) / x.shape[0];
  task.out_stride = kPanelColumns;
  task.end_panel = 1;
  for (std::int64_t c = begin; c < end; c += kBlockColumns) {
    const std::int64_t first_step = c / per_word;
    task.weight.n_steps = (std::min(kBlockColumns, end - c) + per_word - 1) / per_word;
    steps.n_steps = round_up(task.weight.n_steps, 2);
    steps.values =
        matrix.values.data() + panel * matrix.panel_bytes() + first_step * packed_step_bytes(matrix.scheme, matrix.dtype);
    widen(steps, reinterpret_cast<std::byte*>(lane.words.data()));
    task.adds = c > begin;
    for (std::int64_t row = 0; row < x.shape[0]; row += kMaxSkinnyRows) {
      task.x = x.data + row * task.x_stride + first_step * 4;
      task.n_rows = std::min(kMaxSkinnyRows, x.shape[0] - row);
      task.out = lane.partial.data() + row * kPanelColumns;
      skinny_gemm_kernel(isa_, matrix.dtype)(task);
    }
  }
  const ConstTensorView scales{matrix.scales.data(), matrix.scale_dtype, {matrix.n_groups(), matrix.n_scales()}};
  const float factor = factor_of_words(matrix.scheme);
  const std::int64_t first_scale = first / matrix.scale_rows;
  const std::int64_t n_scales = (first + n_columns - 1) / matrix.scale_rows + 1 - first_scale;
  std::array<float, kPanelColumns> some;
  load_f32(scales, group * matrix.n_scales() + first_scale, n_scales, some.data());
  for (std::int64_t i = 0; i < n_columns; ++i)
    lane.scales[static_cast<std::size_t>(i)] =
        factor * some[static_cast<std::size_t>((first + i) / matrix.scale_rows - first_scale)];
  for (std::int64_t i = 0; i < x.shape[0] * kPanelColumns; ++i)
    lane.sums[static_cast<std::size_t>(i)] +=
        lane.partial[static_cast<std::size_t>(i)] * lane.scales[static_cast<std::size_t>(i % kPanelColumns)];
}

void SchemeGemm::multiply_panel(const ConstTensorView& x, const SchemeMatrix& matrix, std::int64_t panel, const TensorView& out,
                                Lane& lane) const {
  const std::size_t n_sums = kRowsAtOnce * kPanelColumns;
  lane.words.resize((kBlockColumns + 2) * kPanelColumns);
  lane.partial.resize(n_sums);
  lane.scales.assign(kPanelColumns, 0);
  lane.zeros.assign(2 * kPanelColumns, matrix.scheme == WeightScheme::i4 ? 8 : 128);
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t n_columns = std::min(kPanelColumns, matrix.n - first);
  for (std::int64_t row = 0; row < x.shape[0]; row += kRowsAtOnce) {
    const ConstTensorView rows = x.rows(row, std::min(x.shape[0], row + kRowsAtOnce));
    lane.sums.assign(n_sums, 0);
    for (std::int64_t group = 0; group < matrix.n_groups(); ++group) add_group(rows, matrix, panel, group, lane);
    for (std::int64_t r = 0; r < rows.shape[0]; ++r)
      store_f32(lane.sums.data() + r * kPanelColumns, n_columns, out, (row + r) * matrix.n + first);
  }
}

void SchemeGemm::multiply(const MatmulArgs& args) {
  const auto& matrix = static_cast<const SchemeMatrix&>(*args.weight);
  if (args.x.shape[0] == 0) return;
  const ConstTensorView x = prepare_x(args.x, matrix);
  parallel_.for_parts(matrix.n_panels(), [&](std::int64_t panel, int thread) {
    multiply_panel(x, matrix, panel, args.out, lanes_[static_cast<std::size_t>(thread)]);
  });
}

}  // namespace baton::cpu
