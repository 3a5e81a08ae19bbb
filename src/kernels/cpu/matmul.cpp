/// Matrix products on the CPU: which of oneDNN's, or of ours, serves a number of rows.
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

#include "core/log.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/skinny_gemm.h"

namespace baton::cpu {
namespace {

constexpr std::array<std::int64_t, 14> kLadder{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512};
/// Numbers of rows at which our products are measured, up to kMaxSkinnyRows.
constexpr std::array<std::int64_t, 7> kFewSteps{1, 2, 4, 8, 16, 24, kMaxSkinnyRows};
/// Which of kFewSteps our product serves.
using FewSteps = std::array<bool, kFewSteps.size()>;

class CpuMatrix final : public SlicedMatrix {
 public:
  FewSteps few_steps{};
};

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

}  // namespace

class MatmulEngine::Impl {
 public:
  Impl(const Parallel& parallel, CpuIsa isa, bool batch_invariant)
      : parallel_(parallel), isa_(isa), batch_invariant_(batch_invariant), onednn_(parallel) {}

  Result<std::unique_ptr<PackedMatrix>> pack(ConstTensorView weight, DType dtype, std::string_view name) {
    check(weight.shape.rank() == 2, "pack_matrix: the weight must be [n, k]");
    check(dtype == DType::f32 || dtype == DType::bf16, "pack_matrix: products are in f32 or bf16");
    auto matrix = std::make_unique<CpuMatrix>();
    BATON_TRY_VOID(onednn_.pack(weight, dtype, name, *matrix));
    for (const std::int64_t rows : steps()) BATON_TRY_VOID(onednn_.make_products(rows, *matrix, DType::f32, name));
    const MatrixShape shape{matrix->n, matrix->k, dtype};
    if (!few_steps_of_.contains(shape)) {
      if (skinny_gemm_kernel(isa_, dtype) != nullptr && matrix->has_panels()) {
        BATON_TRY(matrix->few_steps, measure(weight, dtype, name));
      }
      if (batch_invariant_) BATON_TRY_VOID(prove(*matrix, name));
      few_steps_of_[shape] = matrix->few_steps;
    }
    matrix->few_steps = few_steps_of_[shape];
    return matrix;
  }

  void multiply(const MatmulArgs& args) {
    const auto& matrix = static_cast<const CpuMatrix&>(*args.weight);
    const std::int64_t n_rows = args.x.shape[0];
    for (std::int64_t begin = 0; begin < n_rows;) {
      if (is_ours(matrix, n_rows - begin, args.out.dtype))
        return run_skinny_gemm(args.x.rows(begin, n_rows), matrix, args.out.rows(begin, n_rows));
      const std::int64_t step = step_for(n_rows - begin);
      const std::int64_t rows = std::min(step, n_rows - begin);
      onednn_.multiply(step, args.x.rows(begin, begin + rows), matrix, args.out.rows(begin, begin + rows));
      begin += rows;
    }
  }

 private:
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

  /// Whether our product serves this many rows.
  static bool is_ours(const CpuMatrix& matrix, std::int64_t n_rows, DType out_dtype) {
    const auto* step = std::lower_bound(kFewSteps.begin(), kFewSteps.end(), n_rows);
    return step != kFewSteps.end() && matrix.few_steps[static_cast<std::size_t>(step - kFewSteps.begin())] &&
           out_dtype == DType::f32;
  }

  /// The same by our product. Rows of an odd number of bf16 go through a copy with a zero behind each.
  void run_skinny_gemm(const ConstTensorView& x, const CpuMatrix& matrix, const TensorView& out) {
    const std::int64_t stride = matrix.slices[0].panels.n_steps * 4;
    const std::int64_t row_bytes = matrix.k * static_cast<std::int64_t>(size_bytes(matrix.dtype));
    const std::byte* words = x.data;
    if (row_bytes < stride) {
      padded_x_.assign(static_cast<std::size_t>(x.shape[0] * stride), std::byte{0});
      for (std::int64_t row = 0; row < x.shape[0]; ++row)
        std::memcpy(padded_x_.data() + row * stride, x.data + row * row_bytes, static_cast<std::size_t>(row_bytes));
      words = padded_x_.data();
    }
    tasks_.clear();
    for (const WeightSlice& slice : matrix.slices)
      tasks_.push_back({slice.panels, words, stride, x.shape[0], out.elements<float>().data() + slice.first, matrix.n});
    multiply_skinny(parallel_, skinny_gemm_kernel(isa_, matrix.dtype), tasks_);
  }

  /// Runs both products over the first columns of the weight as they lie in memory, and says at which numbers of rows ours is
  /// faster.
  Result<FewSteps> measure(const ConstTensorView& weight, DType dtype, std::string_view name) {
    constexpr int kRuns = 3;
    constexpr double kWorthwhile = 0.98;
    constexpr std::int64_t kMeasuredNumbers = 4 << 20;
    CpuMatrix matrix;
    const std::int64_t n_panels = std::max<std::int64_t>(1, kMeasuredNumbers / weight.shape[1] / kPanelColumns);
    const std::int64_t n_columns = std::min(weight.shape[0], n_panels * kPanelColumns);
    BATON_TRY_VOID(onednn_.pack(weight.rows(0, n_columns), dtype, name, matrix));
    if (!matrix.has_panels()) return FewSteps{};
    const std::vector<std::byte> x(static_cast<std::size_t>(kMaxSkinnyRows * matrix.k) * size_bytes(matrix.dtype));
    std::vector<float> out(static_cast<std::size_t>(kMaxSkinnyRows * matrix.n));
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
          run_skinny_gemm(rows, matrix, sums);
        } else {
          onednn_.multiply(step_for(n_rows), rows, matrix, sums);
        }
        best[ours ? 0 : 1] = std::min(best[ours ? 0 : 1], seconds_now() - begin);
      }
      is_faster[i] = best[0] < kWorthwhile * best[1];
      report += fmt::format(" rows{}={:.0f}/{:.0f}us", n_rows, best[0] * 1e6, best[1] * 1e6);
    }
    log::debug("event=matmuls_measured n={} k={} dtype={} ours/onednn:{}", matrix.n, matrix.k, to_string(matrix.dtype), report);
    return is_faster;
  }

  /// Makes sure that rows have the same bits in any company: where our products have others than oneDNN's tile, oneDNN alone
  /// must do.
  Result<void> prove(CpuMatrix& matrix, std::string_view name) {
    if (matrix.few_steps != FewSteps{}) {
      if (compare_bits(matrix, name)) return {};
      log::debug("event=skinny_gemm_off n={} k={} reason=other_bits", matrix.n, matrix.k);
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
  OneDnn onednn_;
  std::vector<SkinnyGemmTask> tasks_;
  std::map<MatrixShape, FewSteps> few_steps_of_;  ///< as measured and, in batch-invariant mode, proven
  std::vector<std::byte> padded_x_;
};

MatmulEngine::MatmulEngine(const Parallel& parallel, CpuIsa isa, bool batch_invariant)
    : impl_(std::make_unique<Impl>(parallel, isa, batch_invariant)) {}
MatmulEngine::~MatmulEngine() = default;

Result<std::unique_ptr<PackedMatrix>> MatmulEngine::pack(ConstTensorView weight, DType dtype, std::string_view name) {
  return impl_->pack(weight, dtype, name);
}

void MatmulEngine::multiply(const MatmulArgs& args) { impl_->multiply(args); }

}  // namespace baton::cpu
