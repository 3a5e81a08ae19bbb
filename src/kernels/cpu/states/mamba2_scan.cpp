/// The scan of Mamba-2 on the CPU: token by token, heads in parallel, over copies of a few columns as the gated delta rule. So a row
/// has the same bits however its sequence is cut.
#include "kernels/cpu/backend.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/rows/head_math.h"
#include "kernels/cpu/states/state_columns.h"

// The order of includes is Highway's: foreach_target includes this file once for each instruction set.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/states/mamba2_scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "kernels/cpu/states/round_state.h"
// clang-format on

#ifndef BATON_MAMBA2_SCAN_ROW
#define BATON_MAMBA2_SCAN_ROW
namespace baton::cpu {
/// One row for all columns of one head.
struct ScanRow {
  const float* b;        ///< [key_dim]
  const float* c;        ///< [key_dim]
  const float* x;        ///< [value_dim]
  float* out;            ///< [value_dim]
  float decay;           ///< factor of the state
  float step;            ///< factor of what is written
  float skip;            ///< factor of x in out
  std::int64_t key_dim;  ///< a multiple of 4
};
}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sums over rows of a matrix have so many parts, added in this order: a column has the same bits whatever the width of vectors.
constexpr int kScanParts = 4;

/// `n` vectors of columns from `column` on. `state` has them as its first columns; its rows are `stride` apart. `rounds`: the state to
/// bfloat16 after the row.
template <int n, bool rounds>
void ScanColumns(const ScanRow& row, std::int64_t column, float* state, std::int64_t stride) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  using V = hn::Vec<decltype(d)>;
  const auto decay = hn::Set(d, row.decay);
  V written[n];
  V sums[n][kScanParts];
  for (int i = 0; i < n; ++i) {
    written[i] = hn::Mul(hn::Set(d, row.step), hn::LoadU(d, row.x + column + i * lanes));
    for (V& part : sums[i]) part = hn::Zero(d);
  }
  for (std::int64_t j = 0; j < row.key_dim; j += kScanParts)
    for (int part = 0; part < kScanParts; ++part) {
      const auto b = hn::Set(d, row.b[j + part]);
      const auto c = hn::Set(d, row.c[j + part]);
      for (int i = 0; i < n; ++i) {
        float* const at = state + (j + part) * stride + i * lanes;
        const auto updated = hn::MulAdd(b, written[i], hn::Mul(decay, hn::LoadU(d, at)));
        hn::StoreU(RoundState<rounds>(d, updated), d, at);
        sums[i][part] = hn::MulAdd(c, updated, sums[i][part]);
      }
    }
  for (int i = 0; i < n; ++i) {
    const auto sum = hn::Add(hn::Add(sums[i][0], sums[i][1]), hn::Add(sums[i][2], sums[i][3]));
    const auto x = hn::LoadU(d, row.x + column + i * lanes);
    hn::StoreU(hn::MulAdd(hn::Set(d, row.skip), x, sum), d, row.out + column + i * lanes);
  }
}

template <bool rounds>
void ScanRows(const ScanRow* rows, std::int64_t n_rows, std::int64_t first, std::int64_t n_columns, float* state,
              std::int64_t stride) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < n_rows; ++r) {
    std::int64_t column = 0;
    for (; column + 2 * lanes <= n_columns; column += 2 * lanes)
      ScanColumns<2, rounds>(rows[r], first + column, state + column, stride);
    for (; column < n_columns; column += lanes) ScanColumns<1, rounds>(rows[r], first + column, state + column, stride);
  }
}

/// Rows in turn for columns [first, first + n_columns), multiples of 16. `state` has these columns only, and is f32 also if it is
/// rounded to bfloat16 after each row.
void ScanState(const ScanRow* rows, std::int64_t n_rows, std::int64_t first, std::int64_t n_columns, float* state,
               std::int64_t stride, bool rounds) {
  rounds ? ScanRows<true>(rows, n_rows, first, n_columns, state, stride)
         : ScanRows<false>(rows, n_rows, first, n_columns, state, stride);
}

}  // namespace baton::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(ScanState);

/// A head's matrix, over the rows of runs.
class ScanHead {
 public:
  ScanHead(const Mamba2ScanArgs& args, const RunRows& run, std::int64_t head)
      : args_(args),
        run_(run),
        head_(head),
        n_heads_(args.state.storage->shape().n_heads),
        key_dim_(args.state.storage->shape().key_dim),
        value_dim_(args.state.storage->shape().value_dim),
        group_(head / (n_heads_ / args.n_groups)),
        rounds_(args.state.storage->shape().matrix_dtype == DType::bf16),
        rate_(std::exp(of_head(args.a_log))),
        bias_(of_head(args.dt_bias)),
        skip_(of_head(args.skip)) {}

  /// Some rows of the run. `state` is the matrix.
  void run_rows(const StateRows& of, float* state) {
    std::array<ScanRow, kStateRows> rows;
    for (std::int64_t r = 0; r < of.n_rows; ++r)
      load_row(of.first + r, rows[static_cast<std::size_t>(r)], static_cast<std::size_t>(r));
    update_columns(of, key_dim_, value_dim_, state, copy_,
                   [&](auto first, auto n_rows, auto first_column, auto n_columns, float* matrix, auto stride) {
                     HWY_DYNAMIC_DISPATCH(ScanState)
                     (rows.data() + first, n_rows, first_column, n_columns, matrix, stride, rounds_);
                   });
    for (std::int64_t r = 0; r < of.n_rows; ++r)
      if (!run_.is_replayed(of.first + r))
        store_f32(out_[static_cast<std::size_t>(r)].data(), value_dim_, args_.out,
                  (run_.row(of.first + r) * n_heads_ + head_) * value_dim_);
  }

 private:
  float of_head(const ConstTensorView& numbers) const { return numbers.elements<float>()[static_cast<std::size_t>(head_)]; }

  /// Row `i` of the run.
  void load_row(std::int64_t i, ScanRow& to, std::size_t place) {
    const auto [xbc, begin] = run_.output(args_.xbc, i);
    const std::int64_t b = begin + n_heads_ * value_dim_ + group_ * key_dim_;
    load_f32(xbc, begin + head_ * value_dim_, value_dim_, x_[place].data());
    load_f32(xbc, b, key_dim_, b_[place].data());
    load_f32(xbc, b + args_.n_groups * key_dim_, key_dim_, c_[place].data());
    const float dt = run_.gate(i, head_, [&](std::int64_t row) {
      float of_row = 0;
      load_f32(args_.dt, row * args_.dt.shape[1] + args_.first_dt + head_, 1, &of_row);
      return of_row;
    });
    const float step = softplus(dt + bias_);
    to = {.b = b_[place].data(),
          .c = c_[place].data(),
          .x = x_[place].data(),
          .out = out_[place].data(),
          .decay = std::exp(-rate_ * step),
          .step = step,
          .skip = skip_,
          .key_dim = key_dim_};
  }

  const Mamba2ScanArgs& args_;
  const RunRows& run_;
  const std::int64_t head_, n_heads_, key_dim_, value_dim_, group_;
  const bool rounds_;
  const float rate_, bias_, skip_;
  alignas(64) StateRowNumbers b_, c_, x_, out_;
  alignas(64) StateColumnsCopy copy_;
};

}  // namespace

void CpuBackend::mamba2_scan(const Mamba2ScanArgs& args) { run_heads<ScanHead>(parallel_, args); }

}  // namespace baton::cpu
#endif
