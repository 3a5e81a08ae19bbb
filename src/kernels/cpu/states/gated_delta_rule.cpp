/// The gated delta rule on the CPU: token by token, heads in parallel.
///
/// The chunked form (ops.h) would gain nothing here: with matrices of 128 x 128 and chunks of 64 rows it needs a quarter more
/// operations than the recurrence. That runs over a few rows for some columns of a matrix, a copy of which stays in the cache
/// nearest to the core. So a row has the same bits however its sequence is cut.
#include "kernels/cpu/backend.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/rows/head_math.h"
#include "kernels/cpu/rows/row_math.h"
#include "kernels/cpu/states/state_columns.h"

// The order of includes is Highway's: foreach_target includes this file once for each instruction set.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/states/gated_delta_rule.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "kernels/cpu/states/round_state.h"
// clang-format on

#ifndef BATON_GATED_DELTA_RULE_ROW
#define BATON_GATED_DELTA_RULE_ROW
namespace baton::cpu {
/// One row for all columns of one head.
struct DeltaRow {
  const float* q;        ///< [key_dim]
  const float* k;        ///< [key_dim]
  const float* v;        ///< [value_dim]
  float* out;            ///< [value_dim]
  float decay;           ///< factor of the state
  float beta;            ///< factor of the difference that is written
  std::int64_t key_dim;  ///< a multiple of 4
};
}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sums over rows of a matrix have so many parts, added in this order: a column has the same bits whatever the width of vectors.
constexpr int kParts = 4;

template <class V>
V SumOfParts(const V (&parts)[kParts]) {
  return hn::Add(hn::Add(parts[0], parts[1]), hn::Add(parts[2], parts[3]));
}

/// `n` vectors of columns from `column` on. `state` has them as its first columns; its rows are `stride` apart. `rounds`: the state to
/// bfloat16 after the row.
template <int n, bool rounds>
void UpdateColumns(const DeltaRow& row, std::int64_t column, float* state, std::int64_t stride) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  using V = hn::Vec<decltype(d)>;
  V sums[n][kParts];
  for (auto& parts : sums)
    for (V& part : parts) part = hn::Zero(d);
  for (std::int64_t j = 0; j < row.key_dim; j += kParts)
    for (int part = 0; part < kParts; ++part) {
      const auto k = hn::Set(d, row.k[j + part]);
      for (int i = 0; i < n; ++i)
        sums[i][part] = hn::MulAdd(k, hn::LoadU(d, state + (j + part) * stride + i * lanes), sums[i][part]);
    }
  const auto decay = hn::Set(d, row.decay);
  V written[n];
  for (int i = 0; i < n; ++i) {
    const auto known = hn::Mul(decay, SumOfParts(sums[i]));
    written[i] = hn::Mul(hn::Set(d, row.beta), hn::Sub(hn::LoadU(d, row.v + column + i * lanes), known));
    for (V& part : sums[i]) part = hn::Zero(d);
  }
  for (std::int64_t j = 0; j < row.key_dim; j += kParts)
    for (int part = 0; part < kParts; ++part) {
      const auto k = hn::Set(d, row.k[j + part]);
      const auto q = hn::Set(d, row.q[j + part]);
      for (int i = 0; i < n; ++i) {
        float* const at = state + (j + part) * stride + i * lanes;
        const auto updated = hn::MulAdd(k, written[i], hn::Mul(decay, hn::LoadU(d, at)));
        hn::StoreU(RoundState<rounds>(d, updated), d, at);
        sums[i][part] = hn::MulAdd(q, updated, sums[i][part]);
      }
    }
  for (int i = 0; i < n; ++i) hn::StoreU(SumOfParts(sums[i]), d, row.out + column + i * lanes);
}

template <bool rounds>
void UpdateRows(const DeltaRow* rows, std::int64_t n_rows, std::int64_t first, std::int64_t n_columns, float* state,
                std::int64_t stride) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < n_rows; ++r) {
    std::int64_t column = 0;
    for (; column + 2 * lanes <= n_columns; column += 2 * lanes)
      UpdateColumns<2, rounds>(rows[r], first + column, state + column, stride);
    for (; column < n_columns; column += lanes) UpdateColumns<1, rounds>(rows[r], first + column, state + column, stride);
  }
}

/// Rows in turn for columns [first, first + n_columns), multiples of 16. `state` has these columns only, and is f32 also if it is
/// rounded to bfloat16 after each row.
void UpdateState(const DeltaRow* rows, std::int64_t n_rows, std::int64_t first, std::int64_t n_columns, float* state,
                 std::int64_t stride, bool rounds) {
  rounds ? UpdateRows<true>(rows, n_rows, first, n_columns, state, stride)
         : UpdateRows<false>(rows, n_rows, first, n_columns, state, stride);
}

}  // namespace baton::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(UpdateState);

constexpr float kUnitEpsilon = 1e-6f;  ///< of unit(x)

/// factor * x / sqrt(sum(x^2) + epsilon) of n numbers of `in` from `begin` on.
void load_unit(const ConstTensorView& in, std::int64_t begin, std::int64_t n, float factor, float* out) {
  load_f32(in, begin, n, out);
  scale_and_cap(out, factor / std::sqrt(sum_of_squares(out, n) + kUnitEpsilon), 0, n);
}

/// A head's matrix, over the rows of runs.
class DeltaHead {
 public:
  DeltaHead(const GatedDeltaRuleArgs& args, const RunRows& run, std::int64_t head)
      : args_(args),
        run_(run),
        head_(head),
        n_heads_(args.state.storage->shape().n_heads),
        key_dim_(args.state.storage->shape().key_dim),
        value_dim_(args.state.storage->shape().value_dim),
        key_head_(head / (n_heads_ / args.n_key_heads)),
        rounds_(args.state.storage->shape().matrix_dtype == DType::bf16),
        rate_(std::exp(args.a_log.elements<float>()[static_cast<std::size_t>(head)])),
        bias_(args.dt_bias.elements<float>()[static_cast<std::size_t>(head)]),
        q_factor_(1.0f / std::sqrt(static_cast<float>(key_dim_))) {}

  /// Some rows of the run. `state` is the matrix.
  void run_rows(const StateRows& of, float* state) {
    std::array<DeltaRow, kStateRows> rows;
    for (std::int64_t r = 0; r < of.n_rows; ++r)
      load_row(of.first + r, rows[static_cast<std::size_t>(r)], static_cast<std::size_t>(r));
    update_columns(of, key_dim_, value_dim_, state, copy_,
                   [&](auto first, auto n_rows, auto first_column, auto n_columns, float* matrix, auto stride) {
                     HWY_DYNAMIC_DISPATCH(UpdateState)
                     (rows.data() + first, n_rows, first_column, n_columns, matrix, stride, rounds_);
                   });
    for (std::int64_t r = 0; r < of.n_rows; ++r)
      if (!run_.is_replayed(of.first + r))
        store_f32(out_[static_cast<std::size_t>(r)].data(), value_dim_, args_.out,
                  (run_.row(of.first + r) * n_heads_ + head_) * value_dim_);
  }

 private:
  /// Row `i` of the run.
  void load_row(std::int64_t i, DeltaRow& to, std::size_t place) {
    const auto [qkv, begin] = run_.output(args_.qkv, i);
    const std::int64_t keys = args_.n_key_heads * key_dim_;  // columns of all queries, and of all keys
    load_unit(qkv, begin + key_head_ * key_dim_, key_dim_, q_factor_, q_[place].data());
    load_unit(qkv, begin + keys + key_head_ * key_dim_, key_dim_, 1, k_[place].data());
    load_f32(qkv, begin + 2 * keys + head_ * value_dim_, value_dim_, v_[place].data());
    const auto gate = [&](std::int64_t index) {
      return run_.gate(i, index, [&](std::int64_t row) {
        return args_.gates.elements<float>()[static_cast<std::size_t>(row * 2 * n_heads_ + index)];
      });
    };
    to = {.q = q_[place].data(),
          .k = k_[place].data(),
          .v = v_[place].data(),
          .out = out_[place].data(),
          .decay = std::exp(-rate_ * softplus(gate(n_heads_ + head_) + bias_)),
          .beta = 1.0f / (1.0f + std::exp(-gate(head_))),
          .key_dim = key_dim_};
  }

  const GatedDeltaRuleArgs& args_;
  const RunRows& run_;
  const std::int64_t head_, n_heads_, key_dim_, value_dim_, key_head_;
  const bool rounds_;
  const float rate_, bias_, q_factor_;
  alignas(64) StateRowNumbers q_, k_, v_, out_;
  alignas(64) StateColumnsCopy copy_;
};

}  // namespace

void CpuBackend::gated_delta_rule(const GatedDeltaRuleArgs& args) { run_heads<DeltaHead>(parallel_, args); }

}  // namespace baton::cpu
#endif
