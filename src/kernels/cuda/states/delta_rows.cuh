/// Rows of the gated delta rule as its kernels read them: places in tensors, and gates.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/states/delta_rule.h"

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
  __device__ DeltaHead(const DeltaRuleParams& p, int head)
      : width_(2LL * p.n_key_heads * p.key_dim + static_cast<std::int64_t>(p.n_heads) * p.value_dim),
        query_(head / (p.n_heads / p.n_key_heads) * p.key_dim),
        key_(query_ + p.n_key_heads * p.key_dim),
        value_(2 * p.n_key_heads * p.key_dim + head * p.value_dim),
        head_(head),
        n_heads_(p.n_heads),
        value_dim_(p.value_dim),
        rate_(expf(p.a_log[head])),
        bias_(p.dt_bias[head]) {}

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

}  // namespace baton::cuda
