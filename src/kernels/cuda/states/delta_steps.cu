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

/// Matrices of at most kKeyDim rows, in memory of numbers T, kColumns columns of them in a block, which computes the rows of a run in
/// turn.
template <int kColumns, int kKeyDim, class T>
__global__ void __launch_bounds__(kStepThreads) delta_steps_kernel(const __grid_constant__ DeltaRuleParams p) {
  constexpr int kLanes = kColumns / kStateQuad;       // that have all columns of a row
  constexpr int kRowsAtOnce = kStepThreads / kLanes;  // of a matrix
  constexpr int kPasses = kKeyDim / kRowsAtOnce;
  static_assert(kPasses * kRowsAtOnce == kKeyDim);
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
  const int column = thread % kLanes * kStateQuad;  // of the block's
  const int first_key = thread / kLanes;
  const bool has_columns = first_column + column < p.value_dim;
  const std::int64_t in_slot = (static_cast<std::int64_t>(head) * p.key_dim + first_key) * p.value_dim + first_column + column;

  float state[kPasses][kStateQuad];
  {
    const T* const from = matrices_of<T>(p.matrices, run.read_slot) + in_slot;
    const bool reads = run.read_slot != StateRun::kZeroState && has_columns;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      load_state_quad(from + static_cast<std::int64_t>(pass * kRowsAtOnce) * p.value_dim,
                      reads && first_key + pass * kRowsAtOnce < p.key_dim, state[pass]);
  }

  const DeltaHead of_head(p, head);
  DeltaRowReader<kColumns, kKeyDim> reader;
  const auto write_state = [&] {
    if (!has_columns) return;
    T* const to = matrices_of<T>(p.matrices, run.write_slot) + in_slot;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      if (first_key + pass * kRowsAtOnce < p.key_dim)
        store_state_quad(state[pass], to + static_cast<std::int64_t>(pass * kRowsAtOnce) * p.value_dim);
  };
  const int n_rows = run.n_replayed + run.n_rows;
  const int first_draft = n_rows - run.n_drafts;

  wait_for_kernel_before();
  if (n_rows > 0) {
    reader.fetch(p, of_head, first_column, row_of(run, p.kept, 0));
    reader.prepare(p, of_head, rows[0]);
  }
  __syncthreads();
  for (int r = 0; r < n_rows; ++r) {
    if (r == first_draft) write_state();
    if (r + 1 < n_rows) reader.fetch(p, of_head, first_column, row_of(run, p.kept, r + 1));
    // The row before may still be read where the next is written, so there are three.
    const DeltaRow<kColumns, kKeyDim>& row = rows[r % 3];
    float of_k[kStateQuad] = {};
    float of_q[kStateQuad] = {};
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float k = row.k[first_key + pass * kRowsAtOnce];
      const float q = row.q[first_key + pass * kRowsAtOnce];
#pragma unroll
      for (int c = 0; c < kStateQuad; ++c) {
        of_k[c] = fmaf(k, state[pass][c], of_k[c]);
        of_q[c] = fmaf(q, state[pass][c], of_q[c]);
      }
    }
#pragma unroll
    for (int distance = kLanes; distance < kWarpSize; distance *= 2)
#pragma unroll
      for (int c = 0; c < kStateQuad; ++c) {
        of_k[c] += __shfl_xor_sync(0xffffffffu, of_k[c], distance);
        of_q[c] += __shfl_xor_sync(0xffffffffu, of_q[c], distance);
      }
    if (lane < kLanes) {
      store_f32(of_k, &sums_of_k[r % 2][warp][column]);
      store_f32(of_q, &sums_of_q[r % 2][warp][column]);
    }
    if (r + 1 < n_rows) reader.prepare(p, of_head, rows[(r + 1) % 3]);
    __syncthreads();
    join_warps(sums_of_k[r % 2], column, of_k);
    float written[kStateQuad];
    delta_written(row, column, of_k, written);
    if (thread < kLanes && has_columns && r >= run.n_replayed) {
      join_warps(sums_of_q[r % 2], column, of_q);
      store_delta_out(p, row, of_head.out(run.first_row + r - run.n_replayed) + first_column + column, written, of_q);
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      update_delta_state(row.k[first_key + pass * kRowsAtOnce], row.decay, written, state[pass]);
      round_state_quad<T>(state[pass]);
    }
  }

  if (run.n_drafts == 0) write_state();
}

template <int kColumns, int kKeyDim>
void launch_of_columns(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs) {
  auto* kernel = params.matrices.dtype == DType::bf16 ? delta_steps_kernel<kColumns, kKeyDim, __nv_bfloat16>
                                                      : delta_steps_kernel<kColumns, kKeyDim, float>;
  const dim3 grid(static_cast<unsigned>(params.n_heads * ((params.value_dim + kColumns - 1) / kColumns)),
                  static_cast<unsigned>(n_runs));
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, grid, kStepThreads, 0, "gated_delta_rule", params);
}

}  // namespace

void launch_delta_steps(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs) {
  if (params.key_dim <= 128) return launch_of_columns<32, 128>(device, params, n_runs);
  launch_of_columns<32, 256>(device, params, n_runs);
}

}  // namespace baton::cuda
