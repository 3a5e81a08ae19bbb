/// The states before the pieces of a run (chunk_scan.h), in turn: S' = M S + B. A block has some columns of a head's matrix.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/states/chunk_scan.h"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_quads.cuh"

namespace baton::cuda {
namespace {

constexpr int kPieceColumns = 8;
constexpr int kPieceWarps = 8;
constexpr int kPieceThreads = kPieceWarps * kWarpSize;
constexpr int kMapColumns = kChunkKeyDim / kPieceWarps;  ///< of a warp, whose lanes have four rows each
static_assert(kChunkKeyDim == 4 * kWarpSize);

/// Quads of neighbouring columns of one row of the state.
constexpr int kQuads = kPieceColumns / kStateQuad;
struct PieceState {
  float4 numbers[kQuads][kChunkKeyDim];
  float4 sums[kPieceWarps][4][kQuads][kWarpSize];  ///< of the warps; row i of lane l is 4 l + i
};

/// What a thread needs of a map: four rows of its warp's columns.
class MapQuads {
 public:
  __device__ __forceinline__ void load(const float* map, int warp, int lane) {
#pragma unroll
    for (int i = 0; i < kMapColumns; ++i)
      numbers_[i] = *reinterpret_cast<const float4*>(map + (warp * kMapColumns + i) * kChunkKeyDim + 4 * lane);
  }
  /// The warp's part of M S, into its `sums`.
  __device__ __forceinline__ void multiply(PieceState& state, int warp, int lane) const {
    float sum[4][kPieceColumns] = {};
#pragma unroll
    for (int i = 0; i < kMapColumns; ++i) {
      const float rows[4] = {numbers_[i].x, numbers_[i].y, numbers_[i].z, numbers_[i].w};
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        const float4 of_state = state.numbers[quad][warp * kMapColumns + i];
        const float columns[kStateQuad] = {of_state.x, of_state.y, of_state.z, of_state.w};
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
          for (int c = 0; c < kStateQuad; ++c)
            sum[r][quad * kStateQuad + c] = fmaf(rows[r], columns[c], sum[r][quad * kStateQuad + c]);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        const float* const of = &sum[r][quad * kStateQuad];
        state.sums[warp][r][quad][lane] = make_float4(of[0], of[1], of[2], of[3]);
      }
  }

 private:
  float4 numbers_[kMapColumns];
};

__global__ void __launch_bounds__(kPieceThreads)
    piece_states_kernel(const __grid_constant__ ChunkScanParams p, ChunkRange range,
                        const __grid_constant__ ChunkPieces pieces) {
  __shared__ PieceState state;
  wait_for_kernel_before();
  let_next_kernel_start();
  const Runs runs = runs_of(p.step);
  if (runs.n == 0) return;
  const StateRun run = runs.first[0];
  const int n_slabs = p.value_dim / kPieceColumns;
  const int head = static_cast<int>(blockIdx.x) / n_slabs;
  const int first_column = static_cast<int>(blockIdx.x) % n_slabs * kPieceColumns;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  // The thread's quad of the state.
  const int of_lane = warp / kQuads;
  const int quad = warp % kQuads;
  const int row = 4 * lane + of_lane;
  static_assert(kPieceWarps == 4 * kQuads);
  const std::int64_t in_piece =
      (static_cast<std::int64_t>(head) * kChunkKeyDim + row) * p.value_dim + first_column + quad * kStateQuad;
  const std::int64_t piece_stride = static_cast<std::int64_t>(p.n_heads) * kChunkKeyDim * p.value_dim;
  const int n_chunks = min(chunks_of(run), range.first + range.n) - range.first;
  const std::int32_t slot = range.first == 0 ? run.read_slot : run.write_slot;

  const auto is_piece = [&](int piece) { return piece * pieces.n_chunks < n_chunks; };
  const auto at = [&](int piece) { return reinterpret_cast<float4*>(pieces.states + piece * piece_stride + in_piece); };
  const auto load_map_before = [&](int piece, MapQuads& map) {
    const std::int64_t matrix = static_cast<std::int64_t>(piece - 1) * p.n_heads + head;
    map.load(pieces.maps + matrix * kChunkKeyDim * kChunkKeyDim, warp, lane);
  };
  MapQuads map;
  if (is_piece(1)) load_map_before(1, map);
  float first[kStateQuad];
  const bool reads = slot != StateRun::kZeroState;
  if (p.matrices.dtype == DType::bf16)
    load_state_quad(matrices_of<__nv_bfloat16>(p.matrices, slot) + in_piece, reads, first);
  else
    load_state_quad(matrices_of<float>(p.matrices, slot) + in_piece, reads, first);
  state.numbers[quad][row] = *at(0) = make_float4(first[0], first[1], first[2], first[3]);
  __syncthreads();
#pragma unroll 1
  for (int piece = 1; is_piece(piece); ++piece) {
    float4 sum = *at(piece);
    MapQuads next;  // loaded while the block multiplies by the one before
    if (is_piece(piece + 1)) load_map_before(piece + 1, next);
    map.multiply(state, warp, lane);
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kPieceWarps; ++w) {
      const float4 of_warp = state.sums[w][of_lane][quad][lane];
      sum.x += of_warp.x, sum.y += of_warp.y, sum.z += of_warp.z, sum.w += of_warp.w;
    }
    state.numbers[quad][row] = *at(piece) = sum;
    __syncthreads();
    map = next;
  }
}

}  // namespace

void launch_piece_states(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkPieces& pieces) {
  const int n_slabs = params.value_dim / kPieceColumns;
  launch_overlapped(device, piece_states_kernel, dim3(static_cast<unsigned>(params.n_heads * n_slabs)), kPieceThreads, 0,
                    "piece_states", params, range, pieces);
}

}  // namespace baton::cuda
