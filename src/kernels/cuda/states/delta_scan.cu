/// The gated delta rule in chunks, second kernel: outputs and states, chunk after chunk (delta_chunks.h). A block computes some
/// columns of a head's values in one run. Its warps hold the state as accumulators, and its parts lie in shared memory as operand
/// of the next chunk.
#include "kernels/cuda/states/delta_chunks.h"

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/states/delta_rows.cuh"
#include "kernels/cuda/states/delta_tiles.cuh"
#include "kernels/cuda/states/runs.cuh"

namespace baton::cuda {
namespace {

constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / kWarpSize;
constexpr int kKeyTiles = kDeltaKeyDim / 16;
/// Columns of a block: with 32 a multiprocessor has one block in place of two, and is never faster.
constexpr int kScanColumns = 16;

/// How the eight warps share kColumns columns. Each warp has one tile of eight columns, and some rows of everything.
template <int kColumns>
struct ScanShape {
  static constexpr int kColumnTiles = kColumns / 8;
  static constexpr int kGroups = kScanWarps / kColumnTiles;                 ///< warps with the same columns
  static constexpr int kRowTiles = kChunkTiles / kGroups;                   ///< of a chunk, for a warp
  static constexpr int kStateTiles = kKeyTiles / kGroups;                   ///< of the state
  static constexpr int kRowBytes = kColumns * 2 + 16;                       ///< without bank conflicts, as rows of keys
  static constexpr int kStateBytes = kDeltaKeyDim * kRowBytes;              ///< of one part
  static constexpr int kValueBytes = kStateChunk * kRowBytes;               ///< the same
  static constexpr int kStateAt = 4 * kKeyTileBytes;                        ///< after keys and queries of two chunks
  static constexpr int kInputsAt = kStateAt + kDeltaParts * kStateBytes;    ///< V - diag K S, then U
  static constexpr int kUpdatesAt = kInputsAt + kDeltaParts * kValueBytes;  ///< diag U, of the state's update
  static constexpr int kBytes = kUpdatesAt + kDeltaParts * kValueBytes;
  static_assert(kRowTiles >= 1 && kRowTiles <= 2);

  /// The tiles of a chunk's rows are shared out so that those of a triangle take equally long.
  static __device__ int row_tile(int group, int i) { return kRowTiles == 1 ? group : i == 0 ? group : kChunkTiles - 1 - group; }
};

/// Stores parts of an accumulator, of which the lane has two rows of two columns. `at` is the tile's place.
__device__ __forceinline__ void store_parts(const float (&c)[4], std::uint32_t at, int row_bytes, int part_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  std::uint32_t upper[kDeltaParts];
  std::uint32_t lower[kDeltaParts];
  split_pair(c[0], c[1], upper);
  split_pair(c[2], c[3], lower);
  at += lane / 4 * row_bytes + lane % 4 * 4;
#pragma unroll
  for (int part = 0; part < kDeltaParts; ++part) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at + part * part_bytes), "r"(upper[part]) : "memory");
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at + part * part_bytes + 8 * row_bytes), "r"(lower[part]) : "memory");
  }
}

/// Operand B of 32 x 8 numbers at `at`: two tiles of 16 x 8.
__device__ __forceinline__ void load_column(std::uint32_t (&b)[4], std::uint32_t at, int row_bytes) {
  load_matrices_transposed(b, at + static_cast<int>(threadIdx.x) % kWarpSize * row_bytes);
}

/// Sums by the order of the parts that are multiplied: a matmul of one sum does not wait for those of the others.
using PartSums = float[kDeltaParts][4];

__device__ __forceinline__ float joined(const PartSums& sums, int i) {
  float sum = sums[kDeltaParts - 1][i];
#pragma unroll
  for (int part = kDeltaParts - 2; part >= 0; --part) sum += sums[part][i];
  return sum;
}

/// The tiles of row `m` of a triangle, read before they are needed.
using TriangleRow = uint4[kChunkTiles][kDeltaParts];

__device__ __forceinline__ void load_triangle_row(const ChunkMatrices::Triangle& from, int m, TriangleRow& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int k = 0; k < kChunkTiles; ++k)
    if (k <= m) {
#pragma unroll
      for (int part = 0; part < kDeltaParts; ++part) to[k][part] = from[triangle_place(m, k)][part][lane];
    }
}

__device__ __forceinline__ void multiply_tile(float (&c)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  const std::uint32_t words[4] = {a.x, a.y, a.z, a.w};
  multiply_16x8x16<__nv_bfloat16>(c, words, b0, b1);
}

/// sums += row m of a triangle times the column of tiles at `b`.
__device__ __forceinline__ void multiply_triangle(const TriangleRow& a, int m, std::uint32_t b, int row_bytes, int part_bytes,
                                                  PartSums& sums) {
#pragma unroll
  for (int k = 0; k < kChunkTiles; k += 2) {
    if (k > m) continue;
#pragma unroll
    for (int of_b = 0; of_b < kDeltaParts; ++of_b) {
      std::uint32_t words[4];
      load_column(words, b + of_b * part_bytes + k * 16 * row_bytes, row_bytes);
#pragma unroll
      for (int of_a = 0; of_a + of_b < kDeltaParts; ++of_a) {
        multiply_tile(sums[of_a + of_b], a[k][of_a], words[0], words[1]);
        if (k + 1 <= m) multiply_tile(sums[of_a + of_b], a[k + 1][of_a], words[2], words[3]);
      }
    }
  }
}

__device__ __forceinline__ void store_two(void* to, DType dtype, std::int64_t index, float x, float y) {
  const float both[2] = {x, y};
  switch (dtype) {
    case DType::bf16: return store_f32(both, static_cast<__nv_bfloat16*>(to) + index);
    case DType::f16: return store_f32(both, static_cast<__half*>(to) + index);
    default: return store_f32(both, static_cast<float*>(to) + index);
  }
}

/// The number of chunks in runs before `run`. All lanes of a warp call it.
__device__ __forceinline__ int chunks_before(const Runs& runs, int run) {
  int n = 0;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < run; i += kWarpSize) n += chunks_of(runs.first[i]);
  return static_cast<int>(__reduce_add_sync(0xffffffffu, static_cast<unsigned>(n)));
}

template <int kColumns>
__global__ void __launch_bounds__(kScanThreads, kColumns == 16 ? 2 : 1)
    delta_scan_kernel(const __grid_constant__ DeltaRuleParams p, ChunkRange range, const ChunkMatrices* matrices) {
  using S = ScanShape<kColumns>;
  extern __shared__ __align__(16) std::byte shared[];
  const Runs runs = runs_of(p.step);
  const int run_index = static_cast<int>(blockIdx.y);
  wait_for_kernel_before();
  if (run_index >= runs.n) return;
  const StateRun run = runs.first[run_index];
  const int n_of_run = chunks_of(run);
  const int before = chunks_before(runs, run_index);
  const int first_chunk = max(0, range.first - before);
  const int last_chunk = min(n_of_run, range.first + range.n - before);
  if (first_chunk >= last_chunk) return;

  const int n_slabs = p.value_dim / kColumns;
  const int head_index = static_cast<int>(blockIdx.x) / n_slabs;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int group = warp / S::kColumnTiles;
  const int tile_column = warp % S::kColumnTiles * 8;                                                 // of the block's
  const int column = static_cast<int>(blockIdx.x) % n_slabs * kColumns + tile_column + lane % 4 * 2;  // of the head's
  const int row_in_tile = lane / 4;
  const DeltaHead head(p, head_index);
  const auto* qkv = static_cast<const __nv_bfloat16*>(p.qkv);
  const std::int64_t width = head.query(1) - head.query(0);
  const std::uint32_t base = shared_address(shared);
  const auto keys_at = [&](int chunk) { return base + chunk % 2 * 2 * kKeyTileBytes; };
  const std::uint32_t state_column = base + S::kStateAt + tile_column * 2;
  const std::uint32_t inputs_column = base + S::kInputsAt + tile_column * 2;
  const std::uint32_t updates_column = base + S::kUpdatesAt + tile_column * 2;
  const auto rows_of_chunk = [&](int chunk) {
    return min(first_row_of(run, chunk + 1), run.n_rows) - first_row_of(run, chunk);
  };
  const auto copy_chunk = [&](int chunk) {
    const std::int64_t row = run.first_row + first_row_of(run, chunk);
    copy_key_rows<kScanThreads>(keys_at(chunk), qkv + head.key(row), width, rows_of_chunk(chunk));
    copy_key_rows<kScanThreads>(keys_at(chunk) + kKeyTileBytes, qkv + head.query(row), width, rows_of_chunk(chunk));
    commit_copies();
  };
  copy_chunk(first_chunk);

  // Rows 16 tile + row_in_tile and 8 further, of the warp's tiles of the state; columns `column` and 1 further.
  const std::int64_t in_slot =
      (static_cast<std::int64_t>(head_index) * kDeltaKeyDim + group * S::kStateTiles * 16 + row_in_tile) * p.value_dim + column;
  float state[S::kStateTiles][4];
  const std::int32_t from_slot = first_chunk == 0 ? run.read_slot : run.write_slot;
#pragma unroll
  for (int tile = 0; tile < S::kStateTiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 pair = make_float2(0, 0);
      if (from_slot != StateRun::kZeroState)
        pair = *reinterpret_cast<const float2*>(p.matrices + from_slot * p.slot_stride + in_slot +
                                                static_cast<std::int64_t>(16 * tile + 8 * half) * p.value_dim);
      state[tile][2 * half] = pair.x;
      state[tile][2 * half + 1] = pair.y;
    }
  const auto show_state = [&] {
#pragma unroll
    for (int tile = 0; tile < S::kStateTiles; ++tile)
      store_parts(state[tile], state_column + (group * S::kStateTiles + tile) * 16 * S::kRowBytes, S::kRowBytes,
                  S::kStateBytes);
  };
  show_state();

  for (int chunk = first_chunk; chunk < last_chunk; ++chunk) {
    const ChunkMatrices& of_chunk = matrices[static_cast<std::int64_t>(before + chunk - range.first) * p.n_heads + head_index];
    const std::int64_t first_row = run.first_row + first_row_of(run, chunk);
    const int n_rows = rows_of_chunk(chunk);
    // Of the lane's two rows in each tile.
    float of_keys[S::kRowTiles][2];
    float of_queries[S::kRowTiles][2];
    float to_end[S::kRowTiles][2];
    float values[S::kRowTiles][4];
    TriangleRow t[S::kRowTiles];
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      const int m = S::row_tile(group, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + row_in_tile + 8 * half;
        of_keys[i][half] = of_chunk.of_keys[row];
        of_queries[i][half] = of_chunk.of_queries[row];
        to_end[i][half] = of_chunk.to_end[row];
        std::uint32_t pair = 0;
        if (row < n_rows) pair = *reinterpret_cast<const std::uint32_t*>(qkv + head.value(first_row + row) + column);
        values[i][2 * half] = __uint_as_float(pair << 16);
        values[i][2 * half + 1] = __uint_as_float(pair & 0xffff0000u);
      }
      load_triangle_row(of_chunk.t, m, t[i]);
    }
    const float decay = of_chunk.decay;
    wait_for_copy_groups<0>();
    __syncthreads();  // this chunk's keys and queries, and the state, are there; no warp reads the last chunk's any more
    if (chunk + 1 < last_chunk) copy_chunk(chunk + 1);

    const std::uint32_t keys = as_of_now(keys_at(chunk));
    const std::uint32_t queries = keys + kKeyTileBytes;
    PartSums by_keys[S::kRowTiles] = {};
    PartSums by_queries[S::kRowTiles] = {};
#pragma unroll
    for (int step = 0; step < kKeyTiles; step += 2) {
      std::uint32_t of_state[kDeltaParts][4];
#pragma unroll
      for (int part = 0; part < kDeltaParts; ++part)
        load_column(of_state[part], as_of_now(state_column) + part * S::kStateBytes + step * 16 * S::kRowBytes, S::kRowBytes);
#pragma unroll
      for (int i = 0; i < S::kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t tile = S::row_tile(group, i) * 16 * kKeyRowBytes + (step + j) * 32;
          std::uint32_t a[4];
          load_matrices(a, left_first(keys + tile, kKeyRowBytes));
#pragma unroll
          for (int part = 0; part < kDeltaParts; ++part)
            multiply_16x8x16<__nv_bfloat16>(by_keys[i][part], a, of_state[part][2 * j], of_state[part][2 * j + 1]);
          load_matrices(a, left_first(queries + tile, kKeyRowBytes));
#pragma unroll
          for (int part = 0; part < kDeltaParts; ++part)
            multiply_16x8x16<__nv_bfloat16>(by_queries[i][part], a, of_state[part][2 * j], of_state[part][2 * j + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      own_accumulators(by_keys[i]);
      own_accumulators(by_queries[i]);
#pragma unroll
      for (int e = 0; e < 4; ++e) values[i][e] -= of_keys[i][e / 2] * joined(by_keys[i], e);
      store_parts(values[i], inputs_column + S::row_tile(group, i) * 16 * S::kRowBytes, S::kRowBytes, S::kValueBytes);
    }
    __syncthreads();
    PartSums u[S::kRowTiles] = {};
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i)
      multiply_triangle(t[i], S::row_tile(group, i), as_of_now(inputs_column), S::kRowBytes, S::kValueBytes, u[i]);
    TriangleRow a[S::kRowTiles];
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      own_accumulators(u[i]);
      load_triangle_row(of_chunk.a, S::row_tile(group, i), a[i]);
    }
    __syncthreads();  // U takes the place of what it was computed from
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      const int at = S::row_tile(group, i) * 16 * S::kRowBytes;
      float of_tile[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) of_tile[e] = joined(u[i], e);
      store_parts(of_tile, inputs_column + at, S::kRowBytes, S::kValueBytes);
#pragma unroll
      for (int e = 0; e < 4; ++e) of_tile[e] *= to_end[i][e / 2];
      store_parts(of_tile, updates_column + at, S::kRowBytes, S::kValueBytes);
    }
    __syncthreads();
    // The state first, because the next chunk waits for it.
#pragma unroll
    for (int tile = 0; tile < S::kStateTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) state[tile][e] *= decay;
    PartSums update[S::kStateTiles] = {};
#pragma unroll
    for (int k = 0; k < kChunkTiles; k += 2) {
      std::uint32_t of_u[kDeltaParts][4];
#pragma unroll
      for (int part = 0; part < kDeltaParts; ++part)
        load_column(of_u[part], as_of_now(updates_column) + part * S::kValueBytes + k * 16 * S::kRowBytes, S::kRowBytes);
#pragma unroll
      for (int tile = 0; tile < S::kStateTiles; ++tile)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          std::uint32_t transposed[4];
          load_matrices_transposed(
              transposed, upper_first(keys + (k + j) * 16 * kKeyRowBytes + (group * S::kStateTiles + tile) * 32, kKeyRowBytes));
#pragma unroll
          for (int part = 0; part < kDeltaParts; ++part)
            multiply_16x8x16<__nv_bfloat16>(update[tile][part], transposed, of_u[part][2 * j], of_u[part][2 * j + 1]);
        }
    }
#pragma unroll
    for (int tile = 0; tile < S::kStateTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) state[tile][e] += joined(update[tile], e);
    show_state();
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      const int m = S::row_tile(group, i);
      PartSums by_u = {};
      multiply_triangle(a[i], m, as_of_now(inputs_column), S::kRowBytes, S::kValueBytes, by_u);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + row_in_tile + 8 * half;
        if (row < n_rows)
          store_two(p.out, p.out_dtype, head.out(first_row + row) + column,
                    fmaf(of_queries[i][half], joined(by_queries[i], 2 * half), joined(by_u, 2 * half)),
                    fmaf(of_queries[i][half], joined(by_queries[i], 2 * half + 1), joined(by_u, 2 * half + 1)));
      }
    }
  }
  let_next_kernel_start();
#pragma unroll
  for (int tile = 0; tile < S::kStateTiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(p.matrices + run.write_slot * p.slot_stride + in_slot +
                                 static_cast<std::int64_t>(16 * tile + 8 * half) * p.value_dim) =
          make_float2(state[tile][2 * half], state[tile][2 * half + 1]);
}

template <int kColumns>
void launch_of_columns(const Device& device, const DeltaRuleParams& params, ChunkRange range, const ChunkMatrices* matrices,
                       std::int64_t n_runs) {
  constexpr int kBytes = ScanShape<kColumns>::kBytes;
  auto* kernel = delta_scan_kernel<kColumns>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "gated_delta_rule");
  launch_overlapped(device, kernel,
                    dim3(static_cast<unsigned>(params.n_heads * (params.value_dim / kColumns)), static_cast<unsigned>(n_runs)),
                    kScanThreads, kBytes, "gated_delta_rule", params, range, matrices);
}

}  // namespace

bool runs_delta_scan(const Device& device) { return device.max_shared_bytes >= ScanShape<kScanColumns>::kBytes; }

void launch_delta_scan(const Device& device, const DeltaRuleParams& params, ChunkRange range, const ChunkMatrices* matrices,
                       std::int64_t n_runs) {
  launch_of_columns<kScanColumns>(device, params, range, matrices, n_runs);
}

}  // namespace baton::cuda
