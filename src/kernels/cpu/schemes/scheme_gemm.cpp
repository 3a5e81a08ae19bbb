/// Packs weights of 8 and 4 bits in panels, and multiplies panel by panel.
#include "kernels/cpu/schemes/scheme_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/pages.h"
#include "kernels/named_kernels.h"

namespace baton::cpu {

/// A weight in panels, one after the other.
class SchemeMatrix final : public PackedMatrix, public NamedKernels {
 public:
  std::int64_t n_panels() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  PanelWords words() const {
    if (has_int8_x) return PanelWords::int8;
    return dtype == DType::bf16 ? PanelWords::bf16 : PanelWords::f32;
  }
  std::int64_t n_steps() const { return (k + values_per_word(words()) - 1) / values_per_word(words()); }
  std::int64_t panel_bytes() const { return n_steps() * packed_step_bytes(scheme, words()); }
  std::int64_t n_groups() const { return (k + scale_columns - 1) / scale_columns; }

  std::shared_ptr<std::byte> values;
  std::shared_ptr<std::byte> scales;  ///< [n_panels, n_groups, kPanelColumns] of scale_dtype
  std::shared_ptr<std::byte> zeros;   ///< the same of u8, or null
  std::vector<float> row_scales;      ///< [n], or empty
  DType scale_dtype = DType::f32;
  std::vector<std::int32_t> permutation;
  std::int64_t scale_columns = 1;

  std::byte* values_of(std::int64_t panel) const { return values.get() + panel * panel_bytes(); }
  std::byte* scales_of(std::int64_t panel) const {
    return scales.get() + panel * n_groups() * kPanelColumns * static_cast<std::int64_t>(size_bytes_of_scale());
  }
  /// Null without zeros.
  std::uint8_t* zeros_of(std::int64_t panel) const {
    if (zeros == nullptr) return nullptr;
    return reinterpret_cast<std::uint8_t*>(zeros.get()) + panel * n_groups() * kPanelColumns;
  }

 private:
  std::size_t size_bytes_of_scale() const { return baton::size_bytes(scale_dtype); }
};

namespace {

/// Elements of `size` bytes of a panel's rows, group by group. Row r of the panel is `from` + offset_of(r).
template <class T, class Offset>
void pack_groups(const std::byte* from, const Offset& offset_of, std::int64_t n_rows, std::int64_t n_groups, std::byte* to) {
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const std::byte* const row = from + offset_of(r) * static_cast<std::int64_t>(sizeof(T));
    std::byte* place = to + r * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t g = 0; g < n_groups; ++g, place += kPanelColumns * sizeof(T))
      std::memcpy(place, row + g * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  }
}

/// Values, scales and zeros of one panel. `values`: those of its rows.
void pack_all(const StoredMatrix& weight, const std::byte* values, const SchemeMatrix& matrix, std::int64_t panel) {
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t n_rows = std::min(kPanelColumns, matrix.n - first);
  const std::int64_t n_groups = matrix.n_groups();
  pack_panel({reinterpret_cast<const std::uint8_t*>(values), weight.values.shape[1], n_rows}, matrix.scheme, matrix.words(),
             matrix.n_steps(), matrix.values_of(panel));
  const auto scales_of = [&](std::int64_t r) { return (first + r) / weight.scale_rows * n_groups; };
  std::byte* const scales = matrix.scales_of(panel);
  if (size_bytes(matrix.scale_dtype) == 4) {
    pack_groups<std::uint32_t>(weight.scales.data, scales_of, n_rows, n_groups, scales);
  } else if (size_bytes(matrix.scale_dtype) == 1) {
    pack_groups<std::uint8_t>(weight.scales.data, scales_of, n_rows, n_groups, scales);
  } else {
    pack_groups<std::uint16_t>(weight.scales.data, scales_of, n_rows, n_groups, scales);
  }
  if (weight.zeros.data == nullptr) return;
  pack_groups<std::uint8_t>(
      weight.zeros.data, [&](std::int64_t r) { return (first + r) * n_groups; }, n_rows, n_groups,
      reinterpret_cast<std::byte*>(matrix.zeros_of(panel)));
}

/// Packs panel by panel. Values that are not there are read to memory of the thread, and are still in its cache when they are
/// packed.
Result<void> pack_panels(const Parallel& parallel, const StoredMatrix& weight, const ReadValues* read,
                         const SchemeMatrix& matrix) {
  const std::int64_t row_bytes = weight.values.shape[1];
  std::vector<std::vector<std::byte>> rows_of_thread(static_cast<std::size_t>(parallel.n_threads()));
  std::vector<Result<void>> failures(static_cast<std::size_t>(parallel.n_threads()));
  parallel.for_parts(matrix.n_panels(), [&](std::int64_t panel, int thread) {
    const std::int64_t first = panel * kPanelColumns;
    if (read == nullptr) return pack_all(weight, weight.values.data + first * row_bytes, matrix, panel);
    std::vector<std::byte>& rows = rows_of_thread[static_cast<std::size_t>(thread)];
    rows.resize(static_cast<std::size_t>(kPanelColumns * row_bytes));
    if (auto done = (*read)(first, std::min(matrix.n, first + kPanelColumns), rows.data()); !done)
      failures[static_cast<std::size_t>(thread)] = std::move(done);
    else
      pack_all(weight, rows.data(), matrix, panel);
  });
  for (Result<void>& failure : failures) BATON_TRY_VOID(failure);
  return {};
}

/// Sum of x[begin, end), in an order of its own for each length.
template <class T>
float sum_of(const T* x, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSums = 16;
  std::array<float, kSums> sums{};
  std::int64_t c = begin;
  for (; c + kSums <= end; c += kSums)
    for (std::int64_t i = 0; i < kSums; ++i) sums[static_cast<std::size_t>(i)] += static_cast<float>(x[c + i]);
  for (; c < end; ++c) sums[static_cast<std::size_t>(c % kSums)] += static_cast<float>(x[c]);
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace

SchemeGemm::SchemeGemm(const Parallel& parallel, CpuIsa isa, ByteInstructions bytes)
    : parallel_(parallel), isa_(isa), bytes_(bytes), lanes_(static_cast<std::size_t>(parallel.n_threads())) {}

Result<std::unique_ptr<PackedMatrix>> SchemeGemm::pack(const StoredMatrix& weight, DType dtype, std::string_view name,
                                                       const ReadValues* read) {
  check_stored(weight);
  check(dtype == DType::f32 || dtype == DType::bf16, "pack_matrix: matmuls are in f32 or bf16");
  auto matrix = std::make_unique<SchemeMatrix>();
  matrix->n = weight.shape[0];
  matrix->k = weight.shape[1];
  matrix->dtype = dtype;
  matrix->scheme = weight.scheme;
  if (weight.scheme == WeightScheme::f8 && matrix->k % kF8RowStep == 0) matrix->fewest_f8_rows = 1;
  matrix->scale_columns = std::min(weight.scale_columns, matrix->k);
  matrix->scale_dtype = weight.scales.dtype;
  matrix->has_int8_x = weight.has_int8_x;
  matrix->kernels =
      weight.has_int8_x ? int8_kernels(isa_, bytes_.has_vnni).name : scheme_kernels(isa_, bytes_.has_vbmi, dtype).name;
  const auto n_numbers = static_cast<std::size_t>(matrix->n_panels() * matrix->n_groups() * kPanelColumns);
  const auto values_bytes = static_cast<std::size_t>(matrix->n_panels() * matrix->panel_bytes());
  const std::size_t scales_bytes = n_numbers * size_bytes(matrix->scale_dtype);
  const std::size_t zeros_bytes = weight.zeros.data != nullptr ? n_numbers : 0;
  auto values = pages_.allocate(values_bytes);
  auto scales = pages_.allocate(scales_bytes);
  auto zeros = pages_.allocate(zeros_bytes);
  if (!values || !scales || !zeros)
    return fail(ErrorCode::out_of_memory,
                fmt::format("{}: no memory for {} bytes of packed weights", name, values_bytes + scales_bytes + zeros_bytes));
  matrix->values = std::move(*values);
  matrix->scales = std::move(*scales);
  matrix->zeros = std::move(*zeros);
  BATON_TRY_VOID(pack_panels(parallel_, weight, read, *matrix));
  if (weight.row_scales.data != nullptr) {
    const auto row_scales = weight.row_scales.elements<float>();
    matrix->row_scales.assign(row_scales.begin(), row_scales.end());
  }
  if (weight.permutation.data != nullptr) {
    const auto order = weight.permutation.elements<std::int32_t>();
    for (const std::int32_t column : order) check(column >= 0 && column < matrix->k, "pack_matrix: a permutation outside x");
    matrix->permutation.assign(order.begin(), order.end());
  }
  matrix->size_bytes = values_bytes + scales_bytes + zeros_bytes + matrix->row_scales.size() * sizeof(float) +
                       matrix->permutation.size() * sizeof(std::int32_t);
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

/// x with its columns in the weight's order, and with whole words in each row: [rows, n_steps words].
ConstTensorView SchemeGemm::prepare_x(const ConstTensorView& x, const SchemeMatrix& matrix) {
  constexpr std::int64_t kRowsPerTask = 16;
  // Rounding to 8 bits makes whole words itself.
  const std::int64_t width = matrix.has_int8_x ? matrix.k : matrix.n_steps() * values_per_word(matrix.words());
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

/// Fills x_sums_ [rows, groups] from a prepared x.
void SchemeGemm::add_columns(const ConstTensorView& x, const SchemeMatrix& matrix) {
  constexpr std::int64_t kRowsPerTask = 16;
  const std::int64_t n_groups = matrix.n_groups();
  x_sums_.resize(static_cast<std::size_t>(x.shape[0] * n_groups));
  visit_float(x.dtype, [&]<class T>(T) {
    parallel_.for_ranges(x.shape[0], kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t g = 0; g < n_groups; ++g)
          x_sums_[static_cast<std::size_t>(row * n_groups + g)] =
              sum_of(reinterpret_cast<const T*>(x.data) + row * x.shape[1], g * matrix.scale_columns,
                     std::min(x.shape[1], (g + 1) * matrix.scale_columns));
    });
  });
}

namespace {

/// Calls run(first row, number of rows, sums) for rows of `out` a few at a time, and stores the sums [rows, kPanelColumns],
/// which are 0 before, as a panel's columns.
/// `row_scales` [n] multiply the sums, or are empty.
template <class Run>
void for_rows_of_panel(const TensorView& out, std::int64_t panel, std::int64_t rows_at_once, std::span<const float> row_scales,
                       float* sums, const Run& run) {
  const std::int64_t n_rows = out.shape[0];
  const std::int64_t n = out.shape[1];
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t n_columns = std::min(kPanelColumns, n - first);
  for (std::int64_t row = 0; row < n_rows; row += rows_at_once) {
    const std::int64_t n_some = std::min(rows_at_once, n_rows - row);
    std::fill_n(sums, n_some * kPanelColumns, 0.0f);
    run(row, n_some);
    for (std::int64_t r = 0; r < n_some; ++r) {
      float* const from = sums + r * kPanelColumns;
      if (!row_scales.empty())
        for (std::int64_t c = 0; c < n_columns; ++c) from[c] *= row_scales[static_cast<std::size_t>(first + c)];
      if (out.dtype == DType::f32) {
        std::memcpy(out.data + ((row + r) * n + first) * 4, from, static_cast<std::size_t>(n_columns) * 4);
      } else {
        store_f32(from, n_columns, out, (row + r) * n + first);
      }
    }
  }
}

}  // namespace

void SchemeGemm::multiply_words(const SchemeMatrix& matrix, const ConstTensorView& x, const TensorView& out) {
  const SchemeKernel& kernel = scheme_kernels(isa_, bytes_.has_vbmi, matrix.dtype).of(matrix.scheme);
  const bool needs_sums = kernel.needs_sums(matrix.scheme, matrix.zeros.get() != nullptr);
  if (needs_sums) add_columns(x, matrix);
  const std::int64_t per_word = values_per_word(matrix.words());
  SchemeTask task;
  task.n_steps = matrix.n_steps();
  task.group_steps = (matrix.scale_columns + per_word - 1) / per_word;
  task.scale_dtype = matrix.scale_dtype;
  task.x_stride = task.n_steps * 4;
  parallel_.for_parts(matrix.n_panels(), [&](std::int64_t panel, int thread) {
    Lane& lane = lanes_[static_cast<std::size_t>(thread)];
    SchemeTask share = task;
    share.values = matrix.values_of(panel);
    share.scales = matrix.scales_of(panel);
    share.zeros = matrix.zeros_of(panel);
    share.partial = lane.partial.data();
    share.tile = lane.tile.data();
    share.sums = lane.sums.data();
    for_rows_of_panel(out, panel, kRowsAtOnce, matrix.row_scales, lane.sums.data(), [&](std::int64_t row, std::int64_t n_rows) {
      share.n_rows = n_rows;
      share.x = x.data + row * task.x_stride;
      if (needs_sums) share.x_sums = x_sums_.data() + row * matrix.n_groups();
      kernel.run(share);
    });
  });
}

void SchemeGemm::multiply_int8(const SchemeMatrix& matrix, const ConstTensorView& x, const TensorView& out) {
  const bool is_i4 = matrix.scheme == WeightScheme::i4;
  const std::int64_t block_columns = int8_block_columns(matrix.k, matrix.scale_columns);
  round_to_int8(parallel_, x, block_columns, int8_rows_);
  const Int8Kernels& kernels = int8_kernels(isa_, bytes_.has_vnni);
  const auto run = is_i4 ? kernels.i4 : kernels.i8;
  Int8Task task;
  task.n_steps = matrix.n_steps();
  task.block_steps = (block_columns + 3) / 4;
  task.n_blocks = int8_rows_.n_blocks;
  task.blocks_a_group = (matrix.scale_columns + block_columns - 1) / block_columns;
  task.scale_dtype = matrix.scale_dtype;
  task.middle = is_i4 ? 8 : 128;
  task.x_stride = int8_rows_.row_bytes;
  parallel_.for_parts(matrix.n_panels(), [&](std::int64_t panel, int thread) {
    Lane& lane = lanes_[static_cast<std::size_t>(thread)];
    Int8Task share = task;
    share.values = matrix.values_of(panel);
    share.scales = matrix.scales_of(panel);
    share.zeros = matrix.zeros_of(panel);
    share.sums = lane.sums.data();
    for_rows_of_panel(out, panel, kRowsAtOnce, {}, lane.sums.data(), [&](std::int64_t row, std::int64_t n_rows) {
      share.n_rows = n_rows;
      share.x = int8_rows_.values.data() + row * task.x_stride;
      share.x_scales = int8_rows_.scales.data() + row * task.n_blocks;
      share.x_sums = int8_rows_.sums.data() + row * task.n_blocks;
      run(share);
    });
  });
}

void SchemeGemm::multiply(const MatmulArgs& args) {
  const auto& matrix = static_cast<const SchemeMatrix&>(*args.weight);
  if (args.x.shape[0] == 0) return;
  const ConstTensorView x = prepare_x(args.x, matrix);
  matrix.has_int8_x ? multiply_int8(matrix, x, args.out) : multiply_words(matrix, x, args.out);
}

}  // namespace baton::cpu
