/// The gated delta rule on the CPU: token by token, columns of heads in parallel.
///
/// The chunked form (ops.h) would gain nothing here: with matrices of 128 x 128 and chunks of 64 rows it needs a quarter more
/// operations than the recurrence, and the columns of a task, which has few of one head, stay in the cache nearest to the core.
/// So a row has the same bits however its sequence is cut.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/row_math.h"
#include "kernels/cpu/state_storage.h"

// The order of includes is Highway's: foreach_target includes this file once for each instruction set.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_delta_rule.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#ifndef BATON_GATED_DELTA_RULE_ROW
#define BATON_GATED_DELTA_RULE_ROW
namespace baton::cpu {
/// One row for some columns of one head.
struct DeltaRow {
  const float* q;        ///< [key_dim]
  const float* k;        ///< [key_dim]
  const float* v;        ///< [n_columns]
  float* out;            ///< [n_columns]
  float decay;           ///< factor of the state
  float beta;            ///< factor of the difference that is written
  std::int64_t key_dim;  ///< even
};
}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// `n` (1, 2 or 4) vectors of columns at `state`, whose rows are `stride` apart. Each sum over rows has two halves, even and odd
/// rows, so a column has the same bits whatever the width of vectors.
template <int n>
void UpdateColumns(const DeltaRow& row, std::int64_t column, float* state, std::int64_t stride) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  using V = hn::Vec<decltype(d)>;
  V even[n];
  V odd[n];
  for (int i = 0; i < n; ++i) even[i] = odd[i] = hn::Zero(d);
  float* const columns = state + column;
  for (std::int64_t j = 0; j < row.key_dim; j += 2) {
    const float* const at = columns + j * stride;
    const auto k_even = hn::Set(d, row.k[j]);
    const auto k_odd = hn::Set(d, row.k[j + 1]);
    for (int i = 0; i < n; ++i) {
      even[i] = hn::MulAdd(k_even, hn::LoadU(d, at + i * lanes), even[i]);
      odd[i] = hn::MulAdd(k_odd, hn::LoadU(d, at + stride + i * lanes), odd[i]);
    }
  }
  const auto decay = hn::Set(d, row.decay);
  V written[n];
  for (int i = 0; i < n; ++i) {
    const auto known = hn::Mul(decay, hn::Add(even[i], odd[i]));
    written[i] = hn::Mul(hn::Set(d, row.beta), hn::Sub(hn::LoadU(d, row.v + column + i * lanes), known));
    even[i] = odd[i] = hn::Zero(d);
  }
  for (std::int64_t j = 0; j < row.key_dim; j += 2) {
    float* const at = columns + j * stride;
    const auto k_even = hn::Set(d, row.k[j]);
    const auto k_odd = hn::Set(d, row.k[j + 1]);
    const auto q_even = hn::Set(d, row.q[j]);
    const auto q_odd = hn::Set(d, row.q[j + 1]);
    for (int i = 0; i < n; ++i) {
      const auto s_even = hn::MulAdd(k_even, written[i], hn::Mul(decay, hn::LoadU(d, at + i * lanes)));
      const auto s_odd = hn::MulAdd(k_odd, written[i], hn::Mul(decay, hn::LoadU(d, at + stride + i * lanes)));
      hn::StoreU(s_even, d, at + i * lanes);
      hn::StoreU(s_odd, d, at + stride + i * lanes);
      even[i] = hn::MulAdd(q_even, s_even, even[i]);
      odd[i] = hn::MulAdd(q_odd, s_odd, odd[i]);
    }
  }
  for (int i = 0; i < n; ++i) hn::StoreU(hn::Add(even[i], odd[i]), d, row.out + column + i * lanes);
}

/// Updates columns [0, n_columns) of a matrix, a multiple of 16.
void UpdateState(const DeltaRow& row, std::int64_t n_columns, float* state, std::int64_t stride) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t column = 0;
  for (; column + 4 * lanes <= n_columns; column += 4 * lanes) UpdateColumns<4>(row, column, state, stride);
  for (; column < n_columns; column += lanes) UpdateColumns<1>(row, column, state, stride);
}

}  // namespace baton::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(UpdateState);

constexpr std::int64_t kColumns = 64;     ///< of a task: with 128 rows they are 32 KB
constexpr float kUnitEpsilon = 1e-6f;     ///< of unit(x)
constexpr float kLinearSoftplus = 20.0f;  ///< softplus(x) = x in f32 from here on

float softplus(float x) { return x > kLinearSoftplus ? x : std::log1p(std::exp(x)); }

/// factor * x / sqrt(sum(x^2) + epsilon) of n numbers of `in` from `begin` on.
void load_unit(const ConstTensorView& in, std::int64_t begin, std::int64_t n, float factor, float* out) {
  load_f32(in, begin, n, out);
  const float scale = factor / std::sqrt(sum_of_squares(out, n) + kUnitEpsilon);
  for (std::int64_t i = 0; i < n; ++i) out[i] *= scale;
}

/// Columns [first, first + n_columns) of a head's matrix, over the rows of a run.
void update_columns(const GatedDeltaRuleArgs& args, const StateRun& run, std::int64_t head, std::int64_t first,
                    std::int64_t n_columns) {
  const auto& states = static_cast<const CpuStateStorage&>(*args.state.storage);
  const StateShape& shape = states.shape();
  const std::int64_t key_dim = shape.key_dim;
  const std::int64_t value_dim = shape.value_dim;
  const std::int64_t n_heads = shape.n_heads;
  const std::int64_t key_head = head / (n_heads / args.n_key_heads);
  const std::int64_t keys = args.n_key_heads * key_dim;  // columns of all queries, and of all keys
  float* const state = states.matrix(args.state.layer, run.write_slot, head) + first;
  if (run.read_slot == StateRun::kZeroState) {
    for (std::int64_t j = 0; j < key_dim; ++j) std::fill_n(state + j * value_dim, n_columns, 0.0f);
  } else if (run.read_slot != run.write_slot) {
    const float* const from = states.matrix(args.state.layer, run.read_slot, head) + first;
    for (std::int64_t j = 0; j < key_dim; ++j) std::copy_n(from + j * value_dim, n_columns, state + j * value_dim);
  }
  const float a = std::exp(args.a_log.elements<float>()[static_cast<std::size_t>(head)]);
  const float bias = args.dt_bias.elements<float>()[static_cast<std::size_t>(head)];
  const float q_factor = 1.0f / std::sqrt(static_cast<float>(key_dim));
  alignas(64) float q[kMaxStateDim];
  alignas(64) float k[kMaxStateDim];
  alignas(64) float v[kColumns];
  alignas(64) float out[kColumns];
  for (std::int64_t r = run.first_row; r < run.first_row + run.n_rows; ++r) {
    const std::int64_t row = r * args.qkv.shape[1];
    load_unit(args.qkv, row + key_head * key_dim, key_dim, q_factor, q);
    load_unit(args.qkv, row + keys + key_head * key_dim, key_dim, 1, k);
    load_f32(args.qkv, row + 2 * keys + head * value_dim + first, n_columns, v);
    const float* const gates = args.gates.elements<float>().data() + r * 2 * n_heads;
    const DeltaRow update{.q = q,
                          .k = k,
                          .v = v,
                          .out = out,
                          .decay = std::exp(-a * softplus(gates[n_heads + head] + bias)),
                          .beta = 1.0f / (1.0f + std::exp(-gates[head])),
                          .key_dim = key_dim};
    HWY_DYNAMIC_DISPATCH(UpdateState)(update, n_columns, state, value_dim);
    store_f32(out, n_columns, args.out, (r * n_heads + head) * value_dim + first);
  }
}

}  // namespace

void CpuBackend::gated_delta_rule(const GatedDeltaRuleArgs& args) {
  const StateShape& shape = args.state.storage->shape();
  const std::span<const StateRun> runs = args.state.step.span<StateRun>(SectionKind::state_runs);
  const std::int64_t n_blocks = (shape.value_dim + kColumns - 1) / kColumns;
  const std::int64_t n_of_run = shape.n_heads * n_blocks;
  parallel_.for_ranges(static_cast<std::int64_t>(runs.size()) * n_of_run, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part % n_blocks * kColumns;
      update_columns(args, runs[static_cast<std::size_t>(part / n_of_run)], part % n_of_run / n_blocks, first,
                     std::min(kColumns, shape.value_dim - first));
    }
  });
}

}  // namespace baton::cpu
#endif
