/// Matmuls on the CPU, over weights that are packed once, and biases after them: chooses oneDNN's GEMM, our skinny GEMM or our tile GEMM for each number of rows.
///
/// A weight is packed once, in the layout that oneDNN prefers for 32 rows. At load oneDNN primitives are made over
/// this layout for a ladder of row counts; a matmul of M rows uses the next step of the ladder (padding rows are
/// multiplied and dropped). In batch-invariant mode the ladder has one step. Our own GEMMs read the same memory: the
/// skinny GEMM takes up to 32 rows, the AMX tile GEMM any number. Each is used for the row counts at which it was
/// measured to be faster.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <immintrin.h>

#include "core/log.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/gemm/skinny_gemm.h"
#include "kernels/cpu/gemm/tile_gemm.h"
#include "kernels/cpu/rows/f8_rows.h"
#include "kernels/cpu/rows/row_math.h"
#include "kernels/cpu/schemes/scheme_gemm.h"

namespace baton::cpu {
namespace {

/// Row count of oneDNN's GEMMs in batch-invariant mode, for any number of rows in a matmul.
constexpr std::int64_t kInvariantRows = 32;
constexpr std::array<std::int64_t, 14> kLadder{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512};
/// The implementations of a matmul.
enum class Gemm { onednn, skinny, tiles };
constexpr std::array<std::string_view, 3> kGemmNames{"onednn", "skinny", "tiles"};
/// Row counts at which the GEMMs are measured. A step covers the counts above the step before it, and the last step
/// all larger counts; the skinny GEMM covers counts up to kMaxSkinnyRows only.
constexpr std::array<std::int64_t, 9> kSteps{1, 2, 4, 8, 16, 24, kMaxSkinnyRows, 64, 256};
/// The GEMM of each of kSteps.
using Choice = std::array<Gemm, kSteps.size()>;

constexpr std::size_t step_index(std::int64_t n_rows) {
  const auto index = static_cast<std::size_t>(std::lower_bound(kSteps.begin(), kSteps.end(), n_rows) - kSteps.begin());
  return std::min(index, kSteps.size() - 1);
}

class CpuMatrix final : public SlicedMatrix {
 public:
  Choice choice{};
};

constexpr std::int64_t kLineBytes = 64;

void flush_lines(std::byte* first, std::int64_t n_lines) {
  for (std::int64_t line = 0; line < n_lines; ++line) _mm_clflush(first + line * kLineBytes);
}

/// The same with clflushopt, which does not wait for the flush before it as clflush does (0.14 us each on a Xeon).
__attribute__((target("clflushopt"))) void flush_lines_together(std::byte* first, std::int64_t n_lines) {
  for (std::int64_t line = 0; line < n_lines; ++line) _mm_clflushopt(first + line * kLineBytes);
  _mm_sfence();
}

/// Removes memory from the caches: between two steps of a model its weights do not stay there.
void evict(const Parallel& parallel, CpuIsa isa, const Buffer& buffer) {
  // Every processor with AVX-512 has clflushopt.
  const auto flush = isa >= CpuIsa::avx512 ? flush_lines_together : flush_lines;
  parallel.for_ranges(static_cast<std::int64_t>(buffer.size_bytes()) / kLineBytes, 1024,
                      [&](std::int64_t begin, std::int64_t end) { flush(buffer.data() + begin * kLineBytes, end - begin); });
}

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// n, k, dtype.
using MatrixShape = std::tuple<std::int64_t, std::int64_t, DType>;

/// out[r] += bias, in f32, rounded once. out [rows, n] float, bias [n] float.
void add_bias(const Parallel& parallel, const TensorView& out, const ConstTensorView& bias) {
  constexpr std::int64_t kGrain = 1 << 14;  // least number of elements for one thread
  const std::int64_t n = out.shape[1];
  parallel.for_ranges(out.shape[0], std::max<std::int64_t>(1, kGrain / n), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> added(static_cast<std::size_t>(n));
    std::vector<float> row(out.dtype == DType::f32 ? 0 : static_cast<std::size_t>(n));
    load_f32(bias, 0, n, added.data());
    for (std::int64_t r = begin; r < end; ++r) {
      if (out.dtype == DType::f32) {
        add_to(out.elements<float>().data() + r * n, added.data(), n);
        continue;
      }
      load_f32(out, r * n, n, row.data());
      add_to(row.data(), added.data(), n);
      store_f32(row.data(), n, out, r * n);
    }
  });
}

}  // namespace

/// Packs weights and multiplies by them.
class MatmulEngine {
 public:
  MatmulEngine(const Parallel& parallel, CpuIsa isa, bool batch_invariant)
      : parallel_(parallel),
        isa_(isa),
        batch_invariant_(batch_invariant),
        onednn_(parallel),
        schemes_(parallel, isa, {has_vbmi(), has_vnni()}) {}

  /// Packs [n, k] for x of `dtype` (f32 or bf16). The first weight of a shape is multiplied by 1 to 256 rows with each
  /// GEMM that can, and the fastest is used for the shape from then on. In batch-invariant mode each new shape is also
  /// tested: a row must give the same bits alone, at every place of a tile and among 2048 rows. If our GEMMs fail the
  /// test they are not used; if oneDNN fails, the error names the weight. It is also an error if oneDNN has only
  /// reference code for the shape.
  /// A weight that is not dense is SchemeGemm's, and `read` supplies its values if they are not there.
  Result<std::unique_ptr<PackedMatrix>> pack(const StoredMatrix& stored, DType dtype, std::string_view name,
                                             const ReadValues* read = nullptr) {
    if (stored.scheme != WeightScheme::dense) return schemes_.pack(stored, dtype, name, read);
    const ConstTensorView& weight = stored.values;
    check(weight.shape.rank() == 2, "pack_matrix: the weight must be [n, k]");
    check(dtype == DType::f32 || dtype == DType::bf16, "pack_matrix: matmuls are in f32 or bf16");
    auto matrix = std::make_unique<CpuMatrix>();
    BATON_TRY_VOID(onednn_.pack(weight, dtype, name, *matrix));
    for (const std::int64_t rows : steps()) BATON_TRY_VOID(onednn_.make_matmuls(rows, *matrix, DType::f32, name));
    const MatrixShape shape{matrix->n, matrix->k, dtype};
    if (!choice_of_.contains(shape)) {
      const bool has_tiles = serves(*matrix, Gemm::tiles, 1);
      if (batch_invariant_ && has_tiles) {
        matrix->choice.fill(Gemm::tiles);
      } else if (has_tiles || serves(*matrix, Gemm::skinny, 1)) {
        BATON_TRY(matrix->choice, measure(weight, dtype, name));
      }
      if (batch_invariant_) BATON_TRY_VOID(prove(*matrix, name));
      choice_of_[shape] = matrix->choice;
    }
    matrix->choice = choice_of_[shape];
    return matrix;
  }

  void multiply(const MatmulArgs& args) {
    if (args.x.dtype == DType::f8_e4m3) return multiply_f8(args);
    if (args.weight->scheme != WeightScheme::dense) return schemes_.multiply(args);
    const auto& matrix = static_cast<const CpuMatrix&>(*args.weight);
    const std::int64_t n_rows = args.x.shape[0];
    for (std::int64_t begin = 0; begin < n_rows;) {
      const Gemm gemm = gemm_for(matrix, n_rows - begin, args.out.dtype);
      if (gemm != Gemm::onednn) return run_own(gemm, args.x.rows(begin, n_rows), matrix, args.out.rows(begin, n_rows));
      begin += run_onednn(args.x.rows(begin, n_rows), matrix, args.out.rows(begin, n_rows));
    }
  }

 private:
  /// x in 8 bits becomes numbers of the weight's dtype, exactly, and its scales multiply the sums.
  void multiply_f8(const MatmulArgs& args) {
    const auto& [x, weight, out, bias, x_scales] = args;
    const std::int64_t n_rows = x.shape[0];
    const std::int64_t n = out.shape[1];
    wide_x_.resize(static_cast<std::size_t>(x.shape.n_elements()) * size_bytes(weight->dtype));
    const TensorView wide{wide_x_.data(), weight->dtype, x.shape};
    widen_f8(x, wide);
    if (out.dtype != DType::f32) sums_.resize(static_cast<std::size_t>(out.shape.n_elements()));
    const TensorView sums = out.dtype == DType::f32 ? out : view_of(std::span(sums_), out.shape);
    multiply({wide, weight, sums});
    parallel_.for_ranges(n_rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        float* const row = sums.elements<float>().data() + r * n;
        scale_and_cap(row, x_scales.elements<float>()[static_cast<std::size_t>(r)], 0, n);
        if (out.dtype != DType::f32) store_f32(row, n, out, r * n);
      }
    });
  }

  std::vector<std::int64_t> steps() const {
    if (batch_invariant_) return {kInvariantRows};
    return {kLadder.begin(), kLadder.end()};
  }

  /// Row count of the oneDNN primitive for `n_rows`: the next step of the ladder, or its last step for more rows.
  std::int64_t step_for(std::int64_t n_rows) const {
    if (batch_invariant_) return kInvariantRows;
    const auto* step = std::lower_bound(kLadder.begin(), kLadder.end(), n_rows);
    return step == kLadder.end() ? kLadder.back() : *step;
  }

  /// Multiplies the first rows of x, as many as one step of the ladder takes. Returns their number.
  std::int64_t run_onednn(const ConstTensorView& x, const SlicedMatrix& matrix, const TensorView& out) {
    const std::int64_t step = step_for(x.shape[0]);
    const std::int64_t rows = std::min(step, x.shape[0]);
    onednn_.multiply(step, x.rows(0, rows), matrix, out.rows(0, rows));
    return rows;
  }

  /// Whether a GEMM can multiply this many rows by the matrix.
  bool serves(const SlicedMatrix& matrix, Gemm gemm, std::int64_t n_rows) const {
    switch (gemm) {
      case Gemm::onednn: return true;
      case Gemm::skinny:
        return n_rows <= kMaxSkinnyRows && skinny_gemm_kernel(isa_, matrix.dtype) != nullptr && matrix.has_panels();
      case Gemm::tiles:
        return tile_gemm_kernel(isa_, matrix.dtype) != nullptr &&
               std::ranges::all_of(matrix.slices, [](const WeightSlice& slice) { return fits_tiles(slice.panels); });
    }
    return false;
  }

  /// The GEMM for this many rows. Our own GEMMs write f32 only.
  static Gemm gemm_for(const CpuMatrix& matrix, std::int64_t n_rows, DType out_dtype) {
    return out_dtype == DType::f32 ? matrix.choice[step_index(n_rows)] : Gemm::onednn;
  }

  /// Multiplies with one of our GEMMs. Rows with an odd number of bf16 values are copied and padded with a zero each.
  void run_own(Gemm gemm, const ConstTensorView& x, const CpuMatrix& matrix, const TensorView& out) {
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
    if (gemm == Gemm::tiles) {
      multiply_tiles(parallel_, tile_gemm_kernel(isa_, matrix.dtype), tasks_);
    } else {
      multiply_skinny(parallel_, skinny_gemm_kernel(isa_, matrix.dtype), tasks_);
    }
  }

  /// Times each GEMM on the first columns of the weight in its packed layout, and chooses for each row count: one of
  /// ours if it is faster than oneDNN.
  Result<Choice> measure(const ConstTensorView& weight, DType dtype, std::string_view name) {
    constexpr int kRuns = 3;
    constexpr double kWorthwhile = 0.98;
    constexpr std::int64_t kMeasuredNumbers = 4 << 20;
    CpuMatrix matrix;
    const std::int64_t n_panels = std::max<std::int64_t>(1, kMeasuredNumbers / weight.shape[1] / kPanelColumns);
    const std::int64_t n_columns = std::min(weight.shape[0], n_panels * kPanelColumns);
    BATON_TRY_VOID(onednn_.pack(weight.rows(0, n_columns), dtype, name, matrix));
    const std::vector<std::byte> x(static_cast<std::size_t>(kSteps.back() * matrix.k) * size_bytes(matrix.dtype));
    std::vector<float> out(static_cast<std::size_t>(kSteps.back() * matrix.n));
    Choice choice{};
    std::string report;
    for (std::size_t i = 0; i < kSteps.size(); ++i) {
      const std::int64_t n_rows = kSteps[i];
      const ConstTensorView rows{x.data(), matrix.dtype, {n_rows, matrix.k}};
      const TensorView sums = view_of(std::span(out).first(static_cast<std::size_t>(n_rows * matrix.n)), {n_rows, matrix.n});
      std::vector<Gemm> candidates;
      for (const Gemm gemm : {Gemm::skinny, Gemm::tiles})
        if (serves(matrix, gemm, n_rows)) candidates.push_back(gemm);
      if (candidates.empty()) continue;
      candidates.push_back(Gemm::onednn);
      std::array<double, kGemmNames.size()> best;
      best.fill(std::numeric_limits<double>::infinity());
      for (int run_index = 0; run_index < kRuns; ++run_index)
        for (const Gemm gemm : candidates) {
          evict(parallel_, isa_, matrix.buffer);
          const double begin = seconds_now();
          if (gemm == Gemm::onednn) {
            for (std::int64_t done = 0; done < n_rows;)
              done += run_onednn(rows.rows(done, n_rows), matrix, sums.rows(done, n_rows));
          } else {
            run_own(gemm, rows, matrix, sums);
          }
          double& least = best[static_cast<std::size_t>(gemm)];
          least = std::min(least, seconds_now() - begin);
        }
      const auto seconds = [&](Gemm gemm) { return best[static_cast<std::size_t>(gemm)]; };
      const Gemm ours = seconds(Gemm::tiles) < seconds(Gemm::skinny) ? Gemm::tiles : Gemm::skinny;
      choice[i] = seconds(ours) < kWorthwhile * seconds(Gemm::onednn) ? ours : Gemm::onednn;
      report += fmt::format(" rows{}=", n_rows);
      for (const Gemm gemm : candidates)
        report += fmt::format("{}:{:.0f}us{}", kGemmNames[static_cast<std::size_t>(gemm)], seconds(gemm) * 1e6,
                              gemm == Gemm::onednn ? "" : ",");
    }
    log::debug("event=gemms_measured n={} k={} dtype={}{}", matrix.n, matrix.k, to_string(matrix.dtype), report);
    return choice;
  }

  /// Makes sure that the bits of a row depend neither on the other rows nor on times measured at load, as another process, which
  /// reads a prefix store, has the same bits then. The tile GEMM is used for all row counts where it can multiply. Otherwise the
  /// skinny GEMM is used where it is faster than oneDNN, if it gives the same bits; if not, only oneDNN is used.
  Result<void> prove(CpuMatrix& matrix, std::string_view name) {
    if (matrix.choice != Choice{}) {
      if (compare_bits(matrix, name)) return {};
      log::debug("event=own_gemms_off n={} k={} reason=other_bits", matrix.n, matrix.k);
      matrix.choice = {};
    }
    return compare_bits(matrix, name);
  }

  /// Multiplies 2048 random rows, then the first 1 to 256 of them, then 32 rows that begin elsewhere, and compares
  /// bits.
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
    // Counts up to 32 fill tiles with every number of rows from 1 to 32; larger counts repeat whole tiles.
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
  SchemeGemm schemes_;
  std::vector<SkinnyGemmTask> tasks_;
  std::map<MatrixShape, Choice> choice_of_;  ///< measured and, in batch-invariant mode, tested
  std::vector<std::byte> padded_x_;
  std::vector<std::byte> wide_x_;
  std::vector<float> sums_;
};

// The constructor and the destructor stand where MatmulEngine is known.
CpuBackend::CpuBackend(CpuIsa isa, int n_threads, const BackendOptions& options)
    : isa_(isa),
      parallel_(n_threads),
      matmuls_(std::make_unique<MatmulEngine>(parallel_, isa, options.batch_invariant)),
      collectives_(options.ranks) {}
CpuBackend::~CpuBackend() = default;

namespace {

Result<void> expect_dtype(CpuIsa isa, DType dtype, std::string_view name) {
  if (dtype != DType::bf16 || isa >= CpuIsa::avx512_bf16) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("{}: this processor has no bf16 matmuls ({}); weights must be float32", name, to_string(isa)),
              "dtype");
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> CpuBackend::pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) {
  BATON_TRY_VOID(expect_dtype(isa_, dtype, name));
  return matmuls_->pack(weight, dtype, name);
}

Result<std::unique_ptr<PackedMatrix>> CpuBackend::pack_rows(const StoredMatrix& weight, const ReadValues& read, DType dtype,
                                                            std::string_view name) {
  BATON_TRY_VOID(expect_dtype(isa_, dtype, name));
  return matmuls_->pack(weight, dtype, name, &read);
}

void CpuBackend::matmul(const MatmulArgs& args) {
  matmuls_->multiply(args);
  if (args.bias.data != nullptr) add_bias(parallel_, args.out, args.bias);
}

void CpuBackend::gated_matmul(const GatedMatmulArgs& args) {
  matmul(args.matmul);
  gated_activation(args.activation);
}

}  // namespace baton::cpu
