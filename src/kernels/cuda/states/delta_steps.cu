/// The gated delta rule on a CUDA device, row by row: a block holds some columns of a head's matrix in registers.
#include "kernels/cuda/states/delta_rule.h"

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/delta_rows.cuh"
#include "kernels/cuda/states/runs.cuh"

namespace baton::cuda {
namespace {

constexpr int kStepThreads = 256;
constexpr int kStepWarps = kStepThreads / kWarpSize;
/// Columns of a thread: an access of 16 bytes.
constexpr int kQuad = 4;

__device__ __forceinline__ void store_quad(void* to, DType dtype, std::int64_t index, const float (&x)[kQuad]) {
  switch (dtype) {
    case DType::bf16: return store_f32(x, static_cast<__nv_bfloat16*>(to) + index);
    case DType::f16: return store_f32(x, static_cast<__half*>(to) + index);
    default: return store_f32(x, static_cast<float*>(to) + index);
  }
}

/// One row in shared memory.
template <int kColumns, int kKeyDim>
struct DeltaRow {
  float q[kKeyDim];
  float k[kKeyDim];
  float v[kColumns];
  float q_times_k;
  float decay;
  float beta;
};

/// Matrices of at most kKeyDim rows, kColumns columns of them in a block, which computes the rows of a run in turn. The state is
/// read once and written once; the output needs the old state alone, S'^T q = decay S^T q + (k q) w, so that a row has one sum over
/// the warps.
template <int kColumns, int kKeyDim>
__global__ void __launch_bounds__(kStepThreads) delta_steps_kernel(const __grid_constant__ DeltaRuleParams p) {
  constexpr int kLanes = kColumns / kQuad;            // that have all columns of a row
  constexpr int kRowsAtOnce = kStepThreads / kLanes;  // of a matrix
  constexpr int kPasses = kKeyDim / kRowsAtOnce;
  constexpr int kLoads = kKeyDim / kWarpSize;  // of a key by a lane
  constexpr int kValueLoads = (kColumns + kWarpSize - 1) / kWarpSize;
  static_assert(kPasses * kRowsAtOnce == kKeyDim && kValueLoads <= 2 * kLoads);
  __shared__ DeltaRow<kColumns, kKeyDim> rows[3];
  __shared__ alignas(16) float sums_of_k[2][kStepWarps][kColumns];
  __shared__ alignas(16) float sums_of_q[2][kStepWarps][kColumns];

  let_next_kernel_start();
  const Runs runs = runs_of(p.step);
  if (static_cast<int>(blockIdx.y) >= runs.n) return wait_for_kernel_before();
  const StateRun run = runs.first[blockIdx.y];
  if (run.n_rows > p.most_rows) return wait_for_kernel_before();
  const int n_slabs = (p.value_dim + kColumns - 1) / kColumns;
  const int head = static_cast<int>(blockIdx.x) / n_slabs;
  const int first_column = static_cast<int>(blockIdx.x) % n_slabs * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const int column = thread % kLanes * kQuad;  // of the block's
  const int first_key = thread / kLanes;
  const bool has_columns = first_column + column < p.value_dim;
  const std::int64_t in_slot = (static_cast<std::int64_t>(head) * p.key_dim + first_key) * p.value_dim + first_column + column;

  float state[kPasses][kQuad];
  {
    const float* const from = p.matrices + run.read_slot * p.slot_stride + in_slot;
    const bool reads = run.read_slot != StateRun::kZeroState && has_columns;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      float4 quad = make_float4(0, 0, 0, 0);
      if (reads && first_key + pass * kRowsAtOnce < p.key_dim)
        quad = __ldcs(reinterpret_cast<const float4*>(from + static_cast<std::int64_t>(pass * kRowsAtOnce) * p.value_dim));
      state[pass][0] = quad.x;
      state[pass][1] = quad.y;
      state[pass][2] = quad.z;
      state[pass][3] = quad.w;
    }
  }

  const DeltaHead of_head(p, head);
  float raw[2 * kLoads];  // of the next row: queries and keys in warp 0, values in warp 1, gates in warp 2
  const auto fetch = [&](int i) {
    const RunRow of = row_of(run, p.kept, i);
    const std::int64_t row = of.row;
    const void* const qkv = of.inputs(p.qkv, p.kept);
    if (warp == 0) {
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        const int i = lane + kWarpSize * e;
        raw[e] = i < p.key_dim ? load(qkv, p.qkv_dtype, of_head.query(row) + i) : 0;
        raw[kLoads + e] = i < p.key_dim ? load(qkv, p.qkv_dtype, of_head.key(row) + i) : 0;
      }
    } else if (warp == 1) {
#pragma unroll
      for (int e = 0; e < kValueLoads; ++e) {
        const int i = first_column + lane + kWarpSize * e;
        raw[e] = i < p.value_dim ? load(qkv, p.qkv_dtype, of_head.value(row) + i) : 0;
      }
    } else if (warp == 2) {
      const float* const gates = of.is_replayed ? of.kept + p.kept.gates : p.gates;
      raw[0] = gates[of_head.gate(row)];
      raw[1] = gates[of_head.gate(row) + p.n_heads];
      if (of.kept != nullptr && !of.is_replayed && first_column == 0 && lane == 0) {
        of.kept[p.kept.gates + head] = raw[0];
        of.kept[p.kept.gates + p.n_heads + head] = raw[1];
      }
    }
  };
  const auto prepare = [&](DeltaRow<kColumns, kKeyDim>& to) {
    if (warp == 0) {
      float q_squares = 0;
      float k_squares = 0;
      float products = 0;
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        q_squares = fmaf(raw[e], raw[e], q_squares);
        k_squares = fmaf(raw[kLoads + e], raw[kLoads + e], k_squares);
        products = fmaf(raw[e], raw[kLoads + e], products);
      }
      const float q_factor = unit_factor(warp_sum(q_squares)) * p.q_factor;
      const float k_factor = unit_factor(warp_sum(k_squares));
      products = warp_sum(products);
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        to.q[lane + kWarpSize * e] = raw[e] * q_factor;
        to.k[lane + kWarpSize * e] = raw[kLoads + e] * k_factor;
      }
      if (lane == 0) to.q_times_k = products * q_factor * k_factor;
    } else if (warp == 1) {
#pragma unroll
      for (int e = 0; e < kValueLoads; ++e)
        if (lane + kWarpSize * e < kColumns) to.v[lane + kWarpSize * e] = raw[e];
    } else if (warp == 2 && lane == 0) {
      to.beta = of_head.beta(raw[0]);
      to.decay = expf(of_head.log_decay(raw[1]));
    }
  };

  const auto write_state = [&] {
    if (!has_columns) return;
    float* const to = p.matrices + run.write_slot * p.slot_stride + in_slot;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      if (first_key + pass * kRowsAtOnce < p.key_dim)
        __stcs(reinterpret_cast<float4*>(to + static_cast<std::int64_t>(pass * kRowsAtOnce) * p.value_dim),
               make_float4(state[pass][0], state[pass][1], state[pass][2], state[pass][3]));
  };
  const int n_rows = run.n_replayed + run.n_rows;
  const int first_draft = n_rows - run.n_drafts;

  wait_for_kernel_before();
  if (n_rows > 0) {
    fetch(0);
    prepare(rows[0]);
  }
  __syncthreads();
  for (int r = 0; r < n_rows; ++r) {
    if (r == first_draft) write_state();
    if (r + 1 < n_rows) fetch(r + 1);
    // The row before may still be read where the next is written, so there are three.
    const DeltaRow<kColumns, kKeyDim>& row = rows[r % 3];
    float of_k[kQuad] = {};
    float of_q[kQuad] = {};
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float k = row.k[first_key + pass * kRowsAtOnce];
      const float q = row.q[first_key + pass * kRowsAtOnce];
#pragma unroll
      for (int c = 0; c < kQuad; ++c) {
        of_k[c] = fmaf(k, state[pass][c], of_k[c]);
        of_q[c] = fmaf(q, state[pass][c], of_q[c]);
      }
    }
#pragma unroll
    for (int distance = kLanes; distance < kWarpSize; distance *= 2)
#pragma unroll
      for (int c = 0; c < kQuad; ++c) {
        of_k[c] += __shfl_xor_sync(0xffffffffu, of_k[c], distance);
        of_q[c] += __shfl_xor_sync(0xffffffffu, of_q[c], distance);
      }
    if (lane < kLanes) {
      store_f32(of_k, &sums_of_k[r % 2][warp][column]);
      store_f32(of_q, &sums_of_q[r % 2][warp][column]);
    }
    if (r + 1 < n_rows) prepare(rows[(r + 1) % 3]);
    __syncthreads();
    const auto join = [&](const float(&sums)[kStepWarps][kColumns], float(&sum)[kQuad]) {
      load_f32(&sums[0][column], sum);
#pragma unroll
      for (int w = 1; w < kStepWarps; ++w) {
        float of_warp[kQuad];
        load_f32(&sums[w][column], of_warp);
#pragma unroll
        for (int c = 0; c < kQuad; ++c) sum[c] += of_warp[c];
      }
    };
    join(sums_of_k[r % 2], of_k);
    float written[kQuad];
#pragma unroll
    for (int c = 0; c < kQuad; ++c) written[c] = row.beta * (row.v[column + c] - row.decay * of_k[c]);
    if (thread < kLanes && has_columns && r >= run.n_replayed) {
      join(sums_of_q[r % 2], of_q);
#pragma unroll
      for (int c = 0; c < kQuad; ++c) of_q[c] = fmaf(row.q_times_k, written[c], row.decay * of_q[c]);
      store_quad(p.out, p.out_dtype, of_head.out(run.first_row + r - run.n_replayed) + first_column + column, of_q);
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float k = row.k[first_key + pass * kRowsAtOnce];
#pragma unroll
      for (int c = 0; c < kQuad; ++c) state[pass][c] = fmaf(k, written[c], row.decay * state[pass][c]);
    }
  }

  if (run.n_drafts == 0) write_state();
}

template <int kColumns, int kKeyDim>
void launch_of_columns(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs) {
  auto* kernel = delta_steps_kernel<kColumns, kKeyDim>;
  const dim3 grid(static_cast<unsigned>(params.n_heads * ((params.value_dim + kColumns - 1) / kColumns)),
                  static_cast<unsigned>(n_runs));
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, grid, kStepThreads, 0, "gated_delta_rule", params);
}

}  // namespace

void launch_delta_steps(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs) {
  // Wide blocks have more loads in flight, as long as they occupy all multiprocessors.
  const bool fits_wide = params.key_dim <= 128 && params.value_dim % 128 == 0;
  const bool fills = n_runs * params.n_heads * (params.value_dim / 128) >= device.n_multiprocessors;
  if (params.may_choose && fits_wide && fills) return launch_of_columns<128, 128>(device, params, n_runs);
  if (params.key_dim <= 128) return launch_of_columns<32, 128>(device, params, n_runs);
  launch_of_columns<32, 256>(device, params, n_runs);
}

}  // namespace baton::cuda
