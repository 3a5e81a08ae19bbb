/// Matrix products on the CPU: the only file that sees oneDNN.
///
/// A weight is packed once, in the layout oneDNN prefers at 32 rows, and multiplied by primitives for a ladder of row counts
/// made at load over that layout; a product of M rows runs on the next step of the ladder (rows of padding are multiplied and
/// dropped). In batch-invariant mode the ladder has one step. Our own products of up to 32 rows read the same memory, and take
/// the steps at which they were measured to be faster.
#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include <emmintrin.h>
#include <fmt/format.h>
#include <dnnl.hpp>

#include "core/log.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/pages.h"

namespace baton::cpu {
namespace {

using dnnl::memory;

constexpr std::array<std::int64_t, 14> kLadder{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512};
/// The step whose preferred layout the weight is packed in (measured best over all, targets.md).
constexpr std::int64_t kPackingRows = 32;

memory::data_type dnnl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return memory::data_type::f32;
    case DType::bf16: return memory::data_type::bf16;
    case DType::f16: return memory::data_type::f16;
    default: check_failed("matmul: not a float dtype");
  }
}

memory::desc row_major(std::int64_t rows, std::int64_t columns, DType dtype) {
  return {{rows, columns}, dnnl_type(dtype), memory::format_tag::ab};
}

/// oneDNN 2 describes an operation in two steps and oneDNN 3 in one.
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const memory::desc& x, const memory::desc& weight,
                                      const memory::desc& out) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, x, weight, out};
#else
  return {dnnl::matmul::desc(x, weight, out), engine};
#endif
}

bool is_reference(const dnnl::matmul::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).find("ref") != std::string_view::npos;
}

/// Numbers of rows at which our products are measured, up to kMaxFewRows.
constexpr std::array<std::int64_t, 7> kFewSteps{1, 2, 4, 8, 16, 24, kMaxFewRows};
/// Which of kFewSteps our product serves.
using FewSteps = std::array<bool, kFewSteps.size()>;

/// A weight in oneDNN's layout, seen as [k, n] by its products.
class CpuMatrix final : public PackedMatrix {
 public:
  Buffer buffer;
  memory packed;
  PanelMatrix panels;  ///< the same memory as our products read it; without data if the layout is another
  FewSteps few_steps{};
};

/// The layout as panels, if it is one of those: blocks of 64 columns (with AVX-512), or rows one after the other.
PanelMatrix panels_of(const std::byte* data, const memory::desc& packed, std::int64_t n, std::int64_t k, DType dtype) {
  const auto is = [&](memory::format_tag tag) { return packed == memory::desc({k, n}, dnnl_type(dtype), tag); };
  const std::int64_t per_word = dtype == DType::bf16 ? 2 : 1;
  PanelMatrix panels{data, n, (k + per_word - 1) / per_word, kStepBytes, kStepBytes};
  if (is(dtype == DType::bf16 ? memory::format_tag::BA16a64b2a : memory::format_tag::BA16a64b)) {
    panels.panel_stride = (panels.n_steps + 15) / 16 * 16 * kStepBytes;
  } else if (dtype == DType::f32 && is(memory::format_tag::ab)) {
    panels.step_stride = n * 4;
  } else {
    panels.data = nullptr;
  }
  return panels;
}

/// Takes memory out of the caches, where the weights of a model have no place from one step to the next.
void evict(const Parallel& parallel, const Buffer& buffer) {
  constexpr std::int64_t kLine = 64;
  parallel.for_ranges(static_cast<std::int64_t>(buffer.size_bytes()) / kLine, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) _mm_clflush(buffer.data() + line * kLine);
  });
}

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// n, k, dtype.
using MatrixShape = std::tuple<std::int64_t, std::int64_t, DType>;

/// What one primitive is made for.
using ProductKey = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, DType>;  // rows, n, k, dtype, out dtype

}  // namespace

bool limit_matmul_isa(CpuIsa isa) {
  const auto wanted = [&] {
    switch (isa) {
      case CpuIsa::baseline: return dnnl::cpu_isa::sse41;
      case CpuIsa::avx2: return dnnl::cpu_isa::avx2;
      case CpuIsa::avx512: return dnnl::cpu_isa::avx512_core;
      case CpuIsa::avx512_bf16: return dnnl::cpu_isa::avx512_core_bf16;
    }
    return dnnl::cpu_isa::avx2;
  }();
  return dnnl::set_max_cpu_isa(wanted) == dnnl::status::success || dnnl::get_effective_cpu_isa() == wanted;
}

class MatmulEngine::Impl {
 public:
  Impl(const Parallel& parallel, CpuIsa isa, bool batch_invariant)
      : parallel_(parallel),
        isa_(isa),
        batch_invariant_(batch_invariant),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {}

  Result<std::unique_ptr<PackedMatrix>> pack(ConstTensorView weight, DType dtype, std::string_view name) {
    check(weight.shape.rank() == 2, "pack_matrix: the weight must be [n, k]");
    check(dtype == DType::f32 || dtype == DType::bf16, "pack_matrix: products are in f32 or bf16");
    const std::int64_t n = weight.shape[0];
    const std::int64_t k = weight.shape[1];
    parallel_.bind_libraries();
    try {
      const memory::desc any({k, n}, dnnl_type(dtype), memory::format_tag::any);
      const auto preferred = describe(engine_, row_major(kPackingRows, k, dtype), any, row_major(kPackingRows, n, DType::f32));
      if (is_reference(preferred))
        return fail(ErrorCode::unsupported, fmt::format("{}: oneDNN multiplies {} x {} in {} only with its reference code here",
                                                        name, n, k, to_string(dtype)));
      auto matrix = std::make_unique<CpuMatrix>();
      matrix->n = n;
      matrix->k = k;
      matrix->dtype = dtype;
      // Our products read whole panels, at the end of the last row too.
      BATON_TRY(matrix->buffer, allocate_pages(preferred.weights_desc().get_size() + kStepBytes));
      matrix->packed = memory(preferred.weights_desc(), engine_, matrix->buffer.data());
      matrix->size_bytes = matrix->buffer.size_bytes();
      reorder(weight, n, k, matrix->packed);
      if (few_rows_kernel(isa_, dtype) != nullptr)
        matrix->panels = panels_of(matrix->buffer.data(), preferred.weights_desc(), n, k, dtype);
      for (const std::int64_t rows : steps()) {
        const Product* product = find_or_make(rows, *matrix, DType::f32);
        if (product == nullptr)
          return fail(ErrorCode::unsupported, fmt::format("{}: oneDNN has no fast product of {} rows by {} x {} in {}", name,
                                                          rows, n, k, to_string(dtype)));
      }
      const MatrixShape shape{n, k, dtype};
      if (!few_steps_of_.contains(shape)) {
        if (matrix->panels.data != nullptr) matrix->few_steps = measure(*matrix);
        if (batch_invariant_) BATON_TRY_VOID(prove(*matrix, name));
        few_steps_of_[shape] = matrix->few_steps;
      }
      matrix->few_steps = few_steps_of_[shape];
      return matrix;
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_out_of_memory)
        return fail(ErrorCode::out_of_memory,
                    fmt::format("{}: no memory for {} bytes of packed weights", name, weight.size_bytes()));
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: oneDNN cannot multiply {} x {} in {}: {}", name, n, k, to_string(dtype), error.what()));
    }
  }

  void multiply(const MatmulArgs& args) {
    const auto& matrix = static_cast<const CpuMatrix&>(*args.weight);
    parallel_.bind_libraries();
    const std::int64_t n_rows = args.x.shape[0];
    for (std::int64_t begin = 0; begin < n_rows;) {
      if (is_ours(matrix, n_rows - begin, args.out.dtype))
        return run_few_rows(args.x.rows(begin, n_rows), matrix, args.out.rows(begin, n_rows));
      const std::int64_t step = step_for(n_rows - begin);
      const std::int64_t rows = std::min(step, n_rows - begin);
      run(step, args.x.rows(begin, begin + rows), matrix, args.out.rows(begin, begin + rows));
      begin += rows;
    }
  }

 private:
  struct Product {
    dnnl::matmul primitive;
    memory::desc x;
    memory::desc out;
  };

  std::vector<std::int64_t> steps() const {
    if (batch_invariant_) return {kInvariantRows};
    return {kLadder.begin(), kLadder.end()};
  }

  /// The rows of the product that serves `n_rows`: the next step of the ladder, or its last for more.
  std::int64_t step_for(std::int64_t n_rows) const {
    if (batch_invariant_) return kInvariantRows;
    const auto* step = std::lower_bound(kLadder.begin(), kLadder.end(), n_rows);
    return step == kLadder.end() ? kLadder.back() : *step;
  }

  void reorder(ConstTensorView weight, std::int64_t n, std::int64_t k, memory& packed) {
    const memory::desc transposed({k, n}, dnnl_type(weight.dtype), memory::format_tag::ba);
    memory source(transposed, engine_, const_cast<std::byte*>(weight.data));
    dnnl::reorder(source, packed).execute(stream_, source, packed);
    stream_.wait();
  }

  /// The primitive for this many rows over the weight's layout; null if oneDNN has only reference code.
  const Product* find_or_make(std::int64_t rows, const CpuMatrix& matrix, DType out_dtype) {
    const ProductKey key{rows, matrix.n, matrix.k, matrix.dtype, out_dtype};
    if (const auto found = products_.find(key); found != products_.end()) return &found->second;
    Product product;
    product.x = row_major(rows, matrix.k, matrix.dtype);
    product.out = row_major(rows, matrix.n, out_dtype);
    const auto description = describe(engine_, product.x, matrix.packed.get_desc(), product.out);
    if (is_reference(description)) return nullptr;
    product.primitive = dnnl::matmul(description);
    return &products_.emplace(key, std::move(product)).first->second;
  }

  /// out = x W^T by the product of `step` rows; fewer rows go through padded copies.
  void run(std::int64_t step, const ConstTensorView& x, const CpuMatrix& matrix, const TensorView& out) {
    const Product* product = find_or_make(step, matrix, out.dtype);
    check(product != nullptr, "matmul: oneDNN has no fast product for this output dtype");
    const bool pads = x.shape[0] < step;
    const std::byte* in = x.data;
    std::byte* to = out.data;
    if (pads) {
      in = padded(padded_x_, x.size_bytes(), product->x.get_size());
      std::memcpy(padded_x_.data(), x.data, x.size_bytes());
      to = padded(padded_out_, 0, product->out.get_size());
    }
    memory x_memory(product->x, engine_, const_cast<std::byte*>(in));
    memory out_memory(product->out, engine_, to);
    product->primitive.execute(stream_,
                               {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, matrix.packed}, {DNNL_ARG_DST, out_memory}});
    stream_.wait();
    if (pads) std::memcpy(out.data, to, out.size_bytes());
  }

  /// Whether our product serves this many rows.
  static bool is_ours(const CpuMatrix& matrix, std::int64_t n_rows, DType out_dtype) {
    const auto* step = std::lower_bound(kFewSteps.begin(), kFewSteps.end(), n_rows);
    return step != kFewSteps.end() && matrix.few_steps[static_cast<std::size_t>(step - kFewSteps.begin())] &&
           out_dtype == DType::f32;
  }

  /// The same by our product. Rows of an odd number of bf16 go through a copy with a zero behind each.
  void run_few_rows(const ConstTensorView& x, const CpuMatrix& matrix, const TensorView& out) {
    FewRowsTask task{matrix.panels, x.data, matrix.panels.n_steps * 4, x.shape[0], out.elements<float>().data()};
    const std::size_t row_bytes = static_cast<std::size_t>(matrix.k) * size_bytes(matrix.dtype);
    if (const auto stride = static_cast<std::size_t>(task.x_stride); row_bytes < stride) {
      std::byte* copy = padded(padded_x_, 0, static_cast<std::size_t>(task.n_rows) * stride);
      for (std::size_t row = 0; row < static_cast<std::size_t>(task.n_rows); ++row)
        std::memcpy(copy + row * stride, x.data + row * row_bytes, row_bytes);
      task.x = copy;
    }
    multiply_few_rows(parallel_, few_rows_kernel(isa_, matrix.dtype), task);
  }

  /// Runs both products over the weight as it lies in memory, and says at which numbers of rows ours is faster.
  FewSteps measure(const CpuMatrix& matrix) {
    constexpr int kRuns = 3;
    constexpr double kWorthwhile = 0.98;
    const std::vector<std::byte> x(static_cast<std::size_t>(kMaxFewRows * matrix.k) * size_bytes(matrix.dtype));
    std::vector<float> out(static_cast<std::size_t>(kMaxFewRows * matrix.n));
    FewSteps is_faster{};
    std::string report;
    for (std::size_t i = 0; i < kFewSteps.size(); ++i) {
      const std::int64_t n_rows = kFewSteps[i];
      const ConstTensorView rows{x.data(), matrix.dtype, {n_rows, matrix.k}};
      const TensorView sums = view_of(std::span(out).first(static_cast<std::size_t>(n_rows * matrix.n)), {n_rows, matrix.n});
      std::array<double, 2> best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
      for (int run_index = 0; run_index < 2 * kRuns; ++run_index) {
        const bool ours = run_index % 2 == 0;
        evict(parallel_, matrix.buffer);
        const double begin = seconds_now();
        if (ours) {
          run_few_rows(rows, matrix, sums);
        } else {
          run(step_for(n_rows), rows, matrix, sums);
        }
        best[ours ? 0 : 1] = std::min(best[ours ? 0 : 1], seconds_now() - begin);
      }
      is_faster[i] = best[0] < kWorthwhile * best[1];
      report += fmt::format(" rows{}={:.0f}/{:.0f}us", n_rows, best[0] * 1e6, best[1] * 1e6);
    }
    log::debug("event=products_measured n={} k={} dtype={} ours/onednn:{}", matrix.n, matrix.k, to_string(matrix.dtype),
               report);
    return is_faster;
  }

  /// Grows `scratch` to `size` bytes and zeroes it from `used` on.
  static std::byte* padded(std::vector<std::byte>& scratch, std::size_t used, std::size_t size) {
    if (scratch.size() < size) scratch.resize(size);
    std::fill(scratch.begin() + static_cast<std::ptrdiff_t>(used), scratch.begin() + static_cast<std::ptrdiff_t>(size),
              std::byte{0});
    return scratch.data();
  }

  /// Makes sure that rows have the same bits in any company: where our products have others than oneDNN's tile, oneDNN alone
  /// must do.
  Result<void> prove(CpuMatrix& matrix, std::string_view name) {
    if (matrix.few_steps != FewSteps{}) {
      if (compare_bits(matrix, name)) return {};
      log::debug("event=few_rows_off n={} k={} reason=other_bits", matrix.n, matrix.k);
      matrix.few_steps = {};
    }
    return compare_bits(matrix, name);
  }

  /// Multiplies 2048 random rows, then the first of them in numbers from 1 to 256, then from another place of the tile, and
  /// compares bits.
  Result<void> compare_bits(const CpuMatrix& matrix, std::string_view name) {
    constexpr std::int64_t kRows = 2048;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::byte> x(static_cast<std::size_t>(kRows * matrix.k) * size_bytes(matrix.dtype));
    for (std::int64_t i = 0; i < kRows * matrix.k; ++i) {
      const float value = normal(random);
      if (matrix.dtype == DType::f32)
        std::memcpy(x.data() + i * 4, &value, 4);
      else {
        const BFloat16 rounded(value);
        std::memcpy(x.data() + i * 2, &rounded, 2);
      }
    }
    const TensorView all{x.data(), matrix.dtype, {kRows, matrix.k}};
    std::vector<float> expected(static_cast<std::size_t>(kRows * matrix.n));
    std::vector<float> got(static_cast<std::size_t>(256 * matrix.n));
    multiply({all, &matrix, view_of(std::span(expected), {kRows, matrix.n})});
    // Tiles are filled from 1 to 32 rows by every count up to 32; larger counts repeat whole tiles.
    std::vector<std::pair<std::int64_t, std::int64_t>> runs;  // first row, rows
    for (std::int64_t rows = 1; rows <= kInvariantRows; ++rows) runs.emplace_back(0, rows);
    for (const std::int64_t rows : {33, 64, 100, 255, 256}) runs.emplace_back(0, rows);
    for (std::int64_t first = 1; first < kInvariantRows; first += 6) runs.emplace_back(first, kInvariantRows);
    for (const auto& [first, rows] : runs) {
      const auto part = std::span(got).first(static_cast<std::size_t>(rows * matrix.n));
      multiply({all.rows(first, first + rows), &matrix, view_of(part, {rows, matrix.n})});
      if (std::memcmp(part.data(), expected.data() + first * matrix.n, part.size_bytes()) != 0)
        return fail(ErrorCode::unsupported,
                    fmt::format("--batch-invariant: {} ({} x {}) gives other bits for {} rows than among {}", name, matrix.n,
                                matrix.k, rows, kRows));
    }
    return {};
  }

  const Parallel& parallel_;
  CpuIsa isa_;
  bool batch_invariant_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<ProductKey, Product> products_;
  std::map<MatrixShape, FewSteps> few_steps_of_;  ///< as measured and, in batch-invariant mode, proven
  std::vector<std::byte> padded_x_;
  std::vector<std::byte> padded_out_;
};

MatmulEngine::MatmulEngine(const Parallel& parallel, CpuIsa isa, bool batch_invariant)
    : impl_(std::make_unique<Impl>(parallel, isa, batch_invariant)) {}
MatmulEngine::~MatmulEngine() = default;

Result<std::unique_ptr<PackedMatrix>> MatmulEngine::pack(ConstTensorView weight, DType dtype, std::string_view name) {
  return impl_->pack(weight, dtype, name);
}

void MatmulEngine::multiply(const MatmulArgs& args) { impl_->multiply(args); }

}  // namespace baton::cpu
