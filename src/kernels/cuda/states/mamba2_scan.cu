/// The scan of Mamba-2 on a CUDA device, row by row: a block holds some columns of a head's matrix in registers.
#include "kernels/cuda/states/states.h"

#include <limits>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/mamba2_rows.cuh"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_quads.cuh"
#include "kernels/cuda/states/state_storage.h"

namespace baton::cuda {
namespace {

constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / kWarpSize;
constexpr int kScanColumns = 32;  ///< of a block

/// One row in shared memory.
template <int kKeyDim>
struct ScanRow {
  float b[kKeyDim];
  float c[kKeyDim];
  float x[kScanColumns];
  float decay;
  float step;
};

/// Matrices of at most kKeyDim rows, in memory of numbers T, of which a block computes the rows of a run in turn. The state is read
/// once and written once.
template <int kKeyDim, class T>
__global__ void __launch_bounds__(kScanThreads) mamba2_scan_kernel(const __grid_constant__ Mamba2Params p) {
  constexpr int kLanes = kScanColumns / kStateQuad;   // that have all columns of a row
  constexpr int kRowsAtOnce = kScanThreads / kLanes;  // of a matrix
  constexpr int kPasses = kKeyDim / kRowsAtOnce;
  static_assert(kPasses * kRowsAtOnce == kKeyDim && kLanes <= kWarpSize && kScanColumns == kWarpSize);
  __shared__ ScanRow<kKeyDim> rows[3];
  __shared__ alignas(16) float sums[2][kScanWarps][kScanColumns];

  let_next_kernel_start();
  const Runs runs = runs_of(p.step);
  if (static_cast<int>(blockIdx.y) >= runs.n) return wait_for_kernel_before();
  const StateRun run = runs.first[blockIdx.y];
  if (run.n_rows > p.most_rows) return wait_for_kernel_before();
  const int n_slabs = (p.value_dim + kScanColumns - 1) / kScanColumns;
  const int head = static_cast<int>(blockIdx.x) / n_slabs;
  const int group = head / (p.n_heads / p.n_groups);
  const int first_column = static_cast<int>(blockIdx.x) % n_slabs * kScanColumns;
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

  const Mamba2Gates gates(p, head);
  const float skip = p.skip[head];
  /// Warp 0 loads x and the time step, the others B and C.
  const auto load_row = [&](int i, ScanRow<kKeyDim>& to) {
    const RunRow of = row_of(run, p.kept, i);
    const void* const xbc = of.inputs(p.xbc, p.kept);
    const Mamba2Row row(p, of.row);
    if (warp == 0) {
      const int x = first_column + lane;
      to.x[lane] = x < p.value_dim ? load(xbc, p.xbc_dtype, row.x(head) + x) : 0;
      if (lane != 0) return;
      to.step = gates.step(gates.load_dt(p, of, first_column == 0));
      to.decay = expf(gates.log_decay(to.step));
      return;
    }
    for (int key = thread - kWarpSize; key < kKeyDim; key += kScanThreads - kWarpSize) {
      to.b[key] = key < p.key_dim ? load(xbc, p.xbc_dtype, row.b(group) + key) : 0;
      to.c[key] = key < p.key_dim ? load(xbc, p.xbc_dtype, row.c(group) + key) : 0;
    }
  };
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
  if (n_rows > 0) load_row(0, rows[0]);
  __syncthreads();
  for (int r = 0; r < n_rows; ++r) {
    if (r == first_draft) write_state();
    // The row before may still be read where the next is written, so there are three.
    const ScanRow<kKeyDim>& row = rows[r % 3];
    float of_c[kStateQuad] = {};
    float written[kStateQuad];
#pragma unroll
    for (int i = 0; i < kStateQuad; ++i) written[i] = row.step * row.x[column + i];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float b = row.b[first_key + pass * kRowsAtOnce];
      const float c = row.c[first_key + pass * kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kStateQuad; ++i) {
        state[pass][i] = fmaf(b, written[i], row.decay * state[pass][i]);
        of_c[i] = fmaf(c, state[pass][i], of_c[i]);
      }
      round_state_quad<T>(state[pass]);
    }
#pragma unroll
    for (int distance = kLanes; distance < kWarpSize; distance *= 2)
#pragma unroll
      for (int i = 0; i < kStateQuad; ++i) of_c[i] += __shfl_xor_sync(0xffffffffu, of_c[i], distance);
    if (lane < kLanes) store_f32(of_c, &sums[r % 2][warp][column]);
    if (r + 1 < n_rows) load_row(r + 1, rows[(r + 1) % 3]);
    __syncthreads();
    if (thread >= kLanes || !has_columns || r < run.n_replayed) continue;
    join_warps(sums[r % 2], column, of_c);
#pragma unroll
    for (int i = 0; i < kStateQuad; ++i) of_c[i] = fmaf(skip, row.x[column + i], of_c[i]);
    store_quad(p.out, p.out_dtype,
               ((run.first_row + r - run.n_replayed) * static_cast<std::int64_t>(p.n_heads) + head) * p.value_dim +
                   first_column + column,
               of_c);
  }

  if (run.n_drafts == 0) write_state();
}

void launch_scan(const Device& device, const Mamba2Params& params, std::int64_t n_runs) {
  const auto of_keys = [&]<int kKeyDim>() {
    return params.matrices.dtype == DType::bf16 ? mamba2_scan_kernel<kKeyDim, __nv_bfloat16>
                                                : mamba2_scan_kernel<kKeyDim, float>;
  };
  auto* kernel = params.key_dim <= 128 ? of_keys.template operator()<128>() : of_keys.template operator()<256>();
  const dim3 grid(static_cast<unsigned>(params.n_heads * ((params.value_dim + kScanColumns - 1) / kScanColumns)),
                  static_cast<unsigned>(n_runs));
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, grid, kScanThreads, 0, "mamba2_scan", params);
}

/// Whether long runs are computed in chunks. A captured launch serves runs of any lengths, but none of many rows.
bool takes_mamba2_chunks(const Mamba2ScanArgs& args, const StateShape& shape, std::span<std::byte> memory) {
  return !memory.empty() && shape.key_dim == kChunkKeyDim && shape.value_dim % kChunkValueStep == 0 &&
         bytes_of_chunk(shape.n_heads, static_cast<int>(args.n_groups)) <= memory.size() && args.xbc.dtype == DType::bf16 &&
         is_aligned(args.xbc.data, 16) && args.state.step.header->n_rows > kMostStepRows;
}

}  // namespace

void mamba2_scan(const Device& device, const Mamba2ScanArgs& args, std::span<std::byte> memory) {
  const auto& states = static_cast<const CudaStateStorage&>(*args.state.storage);
  const StateShape& shape = states.shape();
  const bool is_captured = is_capturing(device);
  const std::int64_t n_runs = most_runs(args.state, is_captured);
  if (n_runs == 0) return;
  check(is_aligned(args.out.data, 16), "mamba2_scan: out must be aligned to 16 bytes");
  const bool has_chunks = !is_captured && takes_mamba2_chunks(args, shape, memory);
  const Mamba2Params params{.step = args.state.step.data,
                            .xbc = args.xbc.data,
                            .xbc_dtype = args.xbc.dtype,
                            .dt = args.dt.data,
                            .dt_dtype = args.dt.dtype,
                            .dt_columns = args.dt.shape[1],
                            .first_dt = args.first_dt,
                            .a_log = reinterpret_cast<const float*>(args.a_log.data),
                            .dt_bias = reinterpret_cast<const float*>(args.dt_bias.data),
                            .skip = reinterpret_cast<const float*>(args.skip.data),
                            .matrices = states.matrices(args.state.layer),
                            .kept = states.kept(args.state.layer),
                            .out = args.out.data,
                            .out_dtype = args.out.dtype,
                            .n_heads = shape.n_heads,
                            .n_groups = static_cast<int>(args.n_groups),
                            .key_dim = shape.key_dim,
                            .value_dim = shape.value_dim,
                            .most_rows = has_chunks ? kMostStepRows : std::numeric_limits<int>::max()};
  const std::int64_t n_rows = args.state.step.header->n_rows;
  const bool has_few_rows = is_captured || has_chunks || n_rows <= kMostSweepRows * n_runs;
  if (has_few_rows && runs_mamba2_sweep(device, params))
    launch_mamba2_sweep(device, params, n_runs);
  else
    launch_scan(device, params, n_runs);
  if (!has_chunks) return;
  const ChunkScanParams scan{.step = params.step,
                             .values = params.xbc,
                             .values_width = args.xbc.shape[1],
                             .skip = params.skip,
                             .out = params.out,
                             .out_dtype = params.out_dtype,
                             .matrices = params.matrices,
                             .n_heads = params.n_heads,
                             .n_key_heads = params.n_groups,
                             .value_dim = params.value_dim};
  compute_in_chunks(
      device, ChunkRule::mamba2, scan, n_rows, n_runs, memory,
      [&](ChunkRange range, const ChunkOperands& operands) { launch_mamba2_prepare(device, params, range, operands); });
}

}  // namespace baton::cuda
