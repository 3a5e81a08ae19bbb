/// Rows of Mamba-2 as its kernels read them: places in tensors, and gates.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/mamba2_rule.h"
#include "kernels/cuda/states/runs.cuh"

namespace baton::cuda {

/// Indices in xbc of a row's numbers.
class Mamba2Row {
 public:
  __device__ Mamba2Row(const Mamba2Params& p, std::int64_t row)
      : value_dim_(p.value_dim),
        key_dim_(p.key_dim),
        inner_(static_cast<std::int64_t>(p.n_heads) * p.value_dim),
        c_(static_cast<std::int64_t>(p.n_groups) * p.key_dim),
        begin_(row * width()) {}

  __device__ std::int64_t width() const { return inner_ + 2 * c_; }
  __device__ std::int64_t x(int head) const { return begin_ + static_cast<std::int64_t>(head) * value_dim_; }
  __device__ std::int64_t b(int group) const { return begin_ + inner_ + static_cast<std::int64_t>(group) * key_dim_; }
  __device__ std::int64_t c(int group) const { return b(group) + c_; }

 private:
  int value_dim_;
  int key_dim_;
  std::int64_t inner_;
  std::int64_t c_;  ///< from B to C
  std::int64_t begin_;
};

/// Time steps and decays of a head.
class Mamba2Gates {
 public:
  __device__ Mamba2Gates(const Mamba2Params& p, int head) : Mamba2Gates(p, head, p.a_log[head], p.dt_bias[head]) {}
  __device__ Mamba2Gates(const Mamba2Params&, int head, float a_log, float dt_bias)
      : head_(head), rate_(expf(a_log)), dt_bias_(dt_bias) {}

  /// In dt.
  __device__ std::int64_t index(const Mamba2Params& p, std::int64_t row) const {
    return row * p.dt_columns + p.first_dt + head_;
  }
  /// A row's dt; that of a draft is kept if the caller `keeps` it.
  __device__ float load_dt(const Mamba2Params& p, const RunRow& of, bool keeps) const {
    if (of.is_replayed) return of.kept[p.kept.gates + head_];
    const float dt = load(p.dt, p.dt_dtype, index(p, of.row));
    if (of.kept != nullptr && keeps) of.kept[p.kept.gates + head_] = dt;
    return dt;
  }
  __device__ float step(float dt) const {
    constexpr float kLinearSoftplus = 20.0f;  // softplus(x) = x in f32 from here on
    const float x = dt + dt_bias_;
    return x > kLinearSoftplus ? x : log1pf(expf(x));
  }
  __device__ float log_decay(float step) const { return -rate_ * step; }

 private:
  int head_;
  float rate_;
  float dt_bias_;
};

}  // namespace baton::cuda
