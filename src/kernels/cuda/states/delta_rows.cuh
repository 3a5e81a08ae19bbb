/// Rows of the gated delta rule as its kernels read them: places in tensors, gates, and rows in shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/delta_rule.h"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_quads.cuh"

namespace baton::cuda {

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

/// 1 / sqrt(sum(x^2) + 1e-6).
__device__ __forceinline__ float unit_factor(float squares) { return 1.0f / sqrtf(squares + 1e-6f); }

/// Indices of elements of a value head, and its gates.
class DeltaHead {
 public:
  __device__ DeltaHead(const DeltaRuleParams& p, int head) : DeltaHead(p, head, p.a_log[head], p.dt_bias[head]) {}
  __device__ DeltaHead(const DeltaRuleParams& p, int head, float a_log, float dt_bias)
      : width_(2LL * p.n_key_heads * p.key_dim + static_cast<std::int64_t>(p.n_heads) * p.value_dim),
        query_(head / (p.n_heads / p.n_key_heads) * p.key_dim),
        key_(query_ + p.n_key_heads * p.key_dim),
        value_(2 * p.n_key_heads * p.key_dim + head * p.value_dim),
        head_(head),
        n_heads_(p.n_heads),
        value_dim_(p.value_dim),
        rate_(expf(a_log)),
        bias_(dt_bias) {}

  /// In qkv.
  __device__ std::int64_t query(std::int64_t row) const { return row * width_ + query_; }
  __device__ std::int64_t key(std::int64_t row) const { return row * width_ + key_; }
  __device__ std::int64_t value(std::int64_t row) const { return row * width_ + value_; }
  /// Of b, and n_heads further of a.
  __device__ std::int64_t gate(std::int64_t row) const { return row * 2 * n_heads_ + head_; }
  __device__ std::int64_t out(std::int64_t row) const { return (row * n_heads_ + head_) * value_dim_; }

  __device__ float beta(float b) const { return 1.0f / (1.0f + expf(-b)); }
  __device__ float log_decay(float a) const {
    constexpr float kLinearSoftplus = 20.0f;  // softplus(x) = x in f32 from here on
    const float x = a + bias_;
    return -rate_ * (x > kLinearSoftplus ? x : log1pf(expf(x)));
  }

 private:
  std::int64_t width_;
  int query_, key_, value_, head_, n_heads_, value_dim_;
  float rate_, bias_;
};

/// Where a row's gates are, at DeltaHead::gate.
__device__ __forceinline__ const float* delta_gates(const DeltaRuleParams& p, const RunRow& of) {
  return of.is_replayed ? of.kept + p.kept.gates : p.gates;
}

/// One row in shared memory.
template <int kColumns, int kKeyDim>
struct DeltaRow {
  alignas(16) float q[kKeyDim];
  float k[kKeyDim];
  float v[kColumns];
  float q_times_k;
  float decay;
  float beta;
};

/// Reads rows of matrices of at most kKeyDim rows, kColumns columns of them: queries and keys by warp 0, values by warp 1, gates by
/// warp 2. All warps call it.
template <int kColumns, int kKeyDim>
class DeltaRowReader {
 public:
  /// Begins to load a row; the gates of a draft are kept, by the block that has the first column.
  __device__ void fetch(const DeltaRuleParams& p, const DeltaHead& head, int first_column, const RunRow& of) {
    const void* const qkv = of.inputs(p.qkv, p.kept);
    if (warp_ == 0) {
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        const int i = lane_ + kWarpSize * e;
        raw_[e] = i < p.key_dim ? load(qkv, p.qkv_dtype, head.query(of.row) + i) : 0;
        raw_[kLoads + e] = i < p.key_dim ? load(qkv, p.qkv_dtype, head.key(of.row) + i) : 0;
      }
    } else if (warp_ == 1) {
#pragma unroll
      for (int e = 0; e < kValueLoads; ++e) {
        const int i = first_column + lane_ + kWarpSize * e;
        raw_[e] = i < p.value_dim ? load(qkv, p.qkv_dtype, head.value(of.row) + i) : 0;
      }
    } else if (warp_ == 2) {
      const float* const gates = delta_gates(p, of);
      raw_[0] = gates[head.gate(of.row)];
      raw_[1] = gates[head.gate(of.row) + p.n_heads];
      if (of.kept != nullptr && !of.is_replayed && first_column == 0 && lane_ == 0) {
        of.kept[p.kept.gates + head.gate(0)] = raw_[0];
        of.kept[p.kept.gates + head.gate(0) + p.n_heads] = raw_[1];
      }
    }
  }
  /// The same of numbers that lie together: queries, keys, all values and gates.
  __device__ void fetch(const void* queries, const void* keys, const void* values, const float* gates, DType dtype) {
    if (warp_ == 0) {
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        raw_[e] = load(queries, dtype, lane_ + kWarpSize * e);
        raw_[kLoads + e] = load(keys, dtype, lane_ + kWarpSize * e);
      }
    } else if (warp_ == 1) {
#pragma unroll
      for (int e = 0; e < kValueLoads; ++e) raw_[e] = load(values, dtype, lane_ + kWarpSize * e);
    } else if (warp_ == 2) {
      raw_[0] = gates[0];
      raw_[1] = gates[1];
    }
  }
  /// Writes the row that was fetched last.
  __device__ void prepare(const DeltaRuleParams& p, const DeltaHead& head, DeltaRow<kColumns, kKeyDim>& to) const {
    if (warp_ == 0) {
      float q_squares = 0;
      float k_squares = 0;
      float products = 0;
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        q_squares = fmaf(raw_[e], raw_[e], q_squares);
        k_squares = fmaf(raw_[kLoads + e], raw_[kLoads + e], k_squares);
        products = fmaf(raw_[e], raw_[kLoads + e], products);
      }
      const float q_factor = unit_factor(warp_sum(q_squares)) * p.q_factor;
      const float k_factor = unit_factor(warp_sum(k_squares));
      products = warp_sum(products);
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        to.q[lane_ + kWarpSize * e] = raw_[e] * q_factor;
        to.k[lane_ + kWarpSize * e] = raw_[kLoads + e] * k_factor;
      }
      if (lane_ == 0) to.q_times_k = products * q_factor * k_factor;
    } else if (warp_ == 1) {
#pragma unroll
      for (int e = 0; e < kValueLoads; ++e)
        if (lane_ + kWarpSize * e < kColumns) to.v[lane_ + kWarpSize * e] = raw_[e];
    } else if (warp_ == 2 && lane_ == 0) {
      to.beta = head.beta(raw_[0]);
      to.decay = expf(head.log_decay(raw_[1]));
    }
  }

 private:
  static constexpr int kLoads = kKeyDim / kWarpSize;  // of a key by a lane
  static constexpr int kValueLoads = (kColumns + kWarpSize - 1) / kWarpSize;
  static_assert(kValueLoads <= 2 * kLoads);

  int warp_ = static_cast<int>(threadIdx.x) / kWarpSize;
  int lane_ = static_cast<int>(threadIdx.x) % kWarpSize;
  float raw_[2 * kLoads];
};

// What a row does to four columns, given their sums of the state before it. The state is read once and written once; the output
// needs the old state alone, S'^T q = decay S^T q + (k q) w, so that a row has one sum over the warps.

/// w, by which the row changes the columns at `column`.
template <class Row>
__device__ __forceinline__ void delta_written(const Row& row, int column, const float (&of_k)[kStateQuad],
                                              float (&written)[kStateQuad]) {
#pragma unroll
  for (int c = 0; c < kStateQuad; ++c) written[c] = row.beta * fmaf(-row.decay, of_k[c], row.v[column + c]);
}
template <class Row>
__device__ __forceinline__ void store_delta_out(const DeltaRuleParams& p, const Row& row, std::int64_t index,
                                                const float (&written)[kStateQuad], const float (&of_q)[kStateQuad]) {
  float out[kStateQuad];
#pragma unroll
  for (int c = 0; c < kStateQuad; ++c) out[c] = fmaf(row.q_times_k, written[c], row.decay * of_q[c]);
  store_quad(p.out, p.out_dtype, index, out);
}
__device__ __forceinline__ void update_delta_state(float k, float decay, const float (&written)[kStateQuad],
                                                   float (&state)[kStateQuad]) {
#pragma unroll
  for (int c = 0; c < kStateQuad; ++c) state[c] = fmaf(k, written[c], decay * state[c]);
}

}  // namespace baton::cuda
