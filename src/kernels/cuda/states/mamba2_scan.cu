/// The scan of Mamba-2 on a CUDA device, row by row: a block holds some columns of a head's matrix in registers.
#include "kernels/cuda/states/states.h"

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_storage.h"

namespace baton::cuda {
namespace {

constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / kWarpSize;
constexpr int kScanColumns = 32;  ///< of a block
constexpr int kScanQuad = 4;      ///< columns of a thread: an access of 16 bytes

struct Mamba2ScanParams {
  const std::byte* step;
  const void* xbc;
  DType xbc_dtype;
  const void* dt;
  DType dt_dtype;
  std::int64_t dt_columns;
  std::int64_t first_dt;
  const float* a_log;
  const float* dt_bias;
  const float* skip;
  float* matrices;  ///< of slot 0
  std::int64_t slot_stride;
  KeptRowsOfLayer kept;
  void* out;
  DType out_dtype;
  int n_heads;
  int n_groups;
  int key_dim;
  int value_dim;
};

/// One row in shared memory.
template <int kKeyDim>
struct ScanRow {
  float b[kKeyDim];
  float c[kKeyDim];
  float x[kScanColumns];
  float decay;
  float step;
};

__device__ __forceinline__ void store_scan_quad(void* to, DType dtype, std::int64_t index, const float (&x)[kScanQuad]) {
  switch (dtype) {
    case DType::bf16: return store_f32(x, static_cast<__nv_bfloat16*>(to) + index);
    case DType::f16: return store_f32(x, static_cast<__half*>(to) + index);
    default: return store_f32(x, static_cast<float*>(to) + index);
  }
}

/// Matrices of at most kKeyDim rows, of which a block computes the rows of a run in turn. The state is read once and written once.
template <int kKeyDim>
__global__ void __launch_bounds__(kScanThreads) mamba2_scan_kernel(const __grid_constant__ Mamba2ScanParams p) {
  constexpr int kLanes = kScanColumns / kScanQuad;    // that have all columns of a row
  constexpr int kRowsAtOnce = kScanThreads / kLanes;  // of a matrix
  constexpr int kPasses = kKeyDim / kRowsAtOnce;
  static_assert(kPasses * kRowsAtOnce == kKeyDim && kLanes <= kWarpSize && kScanColumns == kWarpSize);
  __shared__ ScanRow<kKeyDim> rows[3];
  __shared__ alignas(16) float sums[2][kScanWarps][kScanColumns];

  let_next_kernel_start();
  const Runs runs = runs_of(p.step);
  if (static_cast<int>(blockIdx.y) >= runs.n) return wait_for_kernel_before();
  const StateRun run = runs.first[blockIdx.y];
  const int n_slabs = (p.value_dim + kScanColumns - 1) / kScanColumns;
  const int head = static_cast<int>(blockIdx.x) / n_slabs;
  const int group = head / (p.n_heads / p.n_groups);
  const int first_column = static_cast<int>(blockIdx.x) % n_slabs * kScanColumns;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const int column = thread % kLanes * kScanQuad;  // of the block's
  const int first_key = thread / kLanes;
  const bool has_columns = first_column + column < p.value_dim;
  const std::int64_t in_slot = (static_cast<std::int64_t>(head) * p.key_dim + first_key) * p.value_dim + first_column + column;

  float state[kPasses][kScanQuad];
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

  const float rate = expf(p.a_log[head]);
  const float dt_bias = p.dt_bias[head];
  const float skip = p.skip[head];
  const std::int64_t inner = static_cast<std::int64_t>(p.n_heads) * p.value_dim;
  const std::int64_t width = inner + 2LL * p.n_groups * p.key_dim;
  /// Warp 0 loads x and the time step, the others B and C.
  const auto load_row = [&](int of_run, ScanRow<kKeyDim>& to) {
    const RunRow of = row_of(run, p.kept, of_run);
    const void* const xbc = of.inputs(p.xbc, p.kept);
    const std::int64_t begin = of.row * width;
    if (warp == 0) {
      const int i = first_column + lane;
      to.x[lane] = i < p.value_dim ? load(xbc, p.xbc_dtype, begin + static_cast<std::int64_t>(head) * p.value_dim + i) : 0;
      if (lane != 0) return;
      const float dt =
          of.is_replayed ? of.kept[p.kept.gates + head] : load(p.dt, p.dt_dtype, of.row * p.dt_columns + p.first_dt + head);
      if (of.kept != nullptr && !of.is_replayed && first_column == 0) of.kept[p.kept.gates + head] = dt;
      const float raw = dt + dt_bias;
      to.step = raw > 20.0f ? raw : log1pf(expf(raw));
      to.decay = expf(-rate * to.step);
      return;
    }
    const std::int64_t b = begin + inner + static_cast<std::int64_t>(group) * p.key_dim;
    const std::int64_t c = b + static_cast<std::int64_t>(p.n_groups) * p.key_dim;
    for (int i = thread - kWarpSize; i < kKeyDim; i += kScanThreads - kWarpSize) {
      to.b[i] = i < p.key_dim ? load(xbc, p.xbc_dtype, b + i) : 0;
      to.c[i] = i < p.key_dim ? load(xbc, p.xbc_dtype, c + i) : 0;
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
  if (n_rows > 0) load_row(0, rows[0]);
  __syncthreads();
  for (int r = 0; r < n_rows; ++r) {
    if (r == first_draft) write_state();
    // The row before may still be read where the next is written, so there are three.
    const ScanRow<kKeyDim>& row = rows[r % 3];
    float of_c[kScanQuad] = {};
    float written[kScanQuad];
#pragma unroll
    for (int i = 0; i < kScanQuad; ++i) written[i] = row.step * row.x[column + i];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float b = row.b[first_key + pass * kRowsAtOnce];
      const float c = row.c[first_key + pass * kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kScanQuad; ++i) {
        state[pass][i] = fmaf(b, written[i], row.decay * state[pass][i]);
        of_c[i] = fmaf(c, state[pass][i], of_c[i]);
      }
    }
#pragma unroll
    for (int distance = kLanes; distance < kWarpSize; distance *= 2)
#pragma unroll
      for (int i = 0; i < kScanQuad; ++i) of_c[i] += __shfl_xor_sync(0xffffffffu, of_c[i], distance);
    if (lane < kLanes) store_f32(of_c, &sums[r % 2][warp][column]);
    if (r + 1 < n_rows) load_row(r + 1, rows[(r + 1) % 3]);
    __syncthreads();
    if (thread >= kLanes || !has_columns || r < run.n_replayed) continue;
    load_f32(&sums[r % 2][0][column], of_c);
#pragma unroll
    for (int w = 1; w < kScanWarps; ++w) {
      float of_warp[kScanQuad];
      load_f32(&sums[r % 2][w][column], of_warp);
#pragma unroll
      for (int i = 0; i < kScanQuad; ++i) of_c[i] += of_warp[i];
    }
#pragma unroll
    for (int i = 0; i < kScanQuad; ++i) of_c[i] = fmaf(skip, row.x[column + i], of_c[i]);
    store_scan_quad(
        p.out, p.out_dtype,
        (run.first_row + r - run.n_replayed) * inner + static_cast<std::int64_t>(head) * p.value_dim + first_column + column,
        of_c);
  }

  if (run.n_drafts == 0) write_state();
}

void launch_scan(const Device& device, const Mamba2ScanParams& params, std::int64_t n_runs) {
  auto* kernel = params.key_dim <= 128 ? mamba2_scan_kernel<128> : mamba2_scan_kernel<256>;
  const dim3 grid(static_cast<unsigned>(params.n_heads * ((params.value_dim + kScanColumns - 1) / kScanColumns)),
                  static_cast<unsigned>(n_runs));
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, grid, kScanThreads, 0, "mamba2_scan", params);
}

}  // namespace

void mamba2_scan(const Device& device, const Mamba2ScanArgs& args) {
  const auto& states = static_cast<const CudaStateStorage&>(*args.state.storage);
  const StateShape& shape = states.shape();
  const std::int64_t n_runs = most_runs(args.state, is_capturing(device));
  if (n_runs == 0) return;
  check(is_aligned(args.out.data, 16), "mamba2_scan: out must be aligned to 16 bytes");
  const Mamba2ScanParams params{.step = args.state.step.data,
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
                                .slot_stride = states.slot_stride(),
                                .kept = states.kept(args.state.layer),
                                .out = args.out.data,
                                .out_dtype = args.out.dtype,
                                .n_heads = shape.n_heads,
                                .n_groups = static_cast<int>(args.n_groups),
                                .key_dim = shape.key_dim,
                                .value_dim = shape.value_dim};
  launch_scan(device, params, n_runs);
}

}  // namespace baton::cuda
