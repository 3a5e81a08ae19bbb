/// The scan over chunks (chunk_scan.h): outputs and states, chunk after chunk. A block computes some columns of a head's values in
/// one run, each of its warpgroups 64 of them. What the next chunk needs is copied meanwhile.
#include "kernels/cuda/states/chunk_scan.h"

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/states/chunk_consumer.cuh"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_quads.cuh"

namespace baton::cuda {
namespace {

constexpr int kGroupColumns = 64;  ///< of a warpgroup
constexpr int kChunkStages = 2;

template <ChunkRule kRule, int kGroups>
struct ScanShared {
  static constexpr bool kHasT = kRule == ChunkRule::delta;
  static constexpr int kMatrixTiles = (kHasT ? 2 : 1) * kOperandParts;
  struct Image {
    ChunkKeys keys;
    ChunkTile matrices[kMatrixTiles];  ///< T if there is one, and A
  };
  alignas(1024) Image images[kChunkStages];
  ChunkTile values[kChunkStages][kGroups];
  ChunkFactors factors[kChunkStages];
  alignas(8) std::uint64_t full[kChunkStages];
  std::uint64_t empty[kChunkStages];

  static constexpr int kThreads = kGroups * 128;
};
static_assert(offsetof(ChunkMatrices, a) == sizeof(ChunkMatrices::t));

/// The chunks of a block.
struct ScanWork {
  StateRun run;
  int head;
  int first_column;
  int first_chunk;  ///< of the run
  int last_chunk;   ///< the one after
  int place;        ///< of the first in the operands

  __device__ std::int64_t first_row(int chunk) const { return run.first_row + first_row_of(run, chunk); }
  __device__ int n_rows(int chunk) const { return min(first_row_of(run, chunk + 1), run.n_rows) - first_row_of(run, chunk); }
};

/// The number of chunks in runs before `run`. All lanes of a warp call it.
__device__ __forceinline__ int chunks_before(const Runs& runs, int run) {
  int n = 0;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < run; i += kWarpSize) n += chunks_of(runs.first[i]);
  return static_cast<int>(__reduce_add_sync(0xffffffffu, static_cast<unsigned>(n)));
}

/// Whether there is any.
__device__ __forceinline__ bool find_work(const ChunkScanParams& p, ChunkRange range, int n_columns, ScanWork& work) {
  const Runs runs = runs_of(p.step);
  const int run_index = static_cast<int>(blockIdx.y);
  if (run_index >= runs.n) return false;
  work.run = runs.first[run_index];
  const int before = chunks_before(runs, run_index);
  work.first_chunk = max(0, range.first - before);
  work.last_chunk = min(chunks_of(work.run), range.first + range.n - before);
  work.place = before + work.first_chunk - range.first;
  const int n_slabs = p.value_dim / n_columns;
  work.head = static_cast<int>(blockIdx.x) / n_slabs;
  work.first_column = static_cast<int>(blockIdx.x) % n_slabs * n_columns;
  return work.first_chunk < work.last_chunk;
}

/// Copies what chunks need: operands into stages that both warpgroups have left, values by the warp that reads them.
template <ChunkRule kRule, int kGroups>
class ScanCopies {
 public:
  using Shared = ScanShared<kRule, kGroups>;

  __device__ ScanCopies(const ChunkScanParams& p, const ChunkOperands& operands, const ScanWork& work, Shared& s)
      : s_(s),
        work_(work),
        matrices_(operands.matrices + static_cast<std::int64_t>(work.place) * p.n_heads + work.head),
        keys_(operands.keys + static_cast<std::int64_t>(work.place) * p.n_key_heads + work.head / (p.n_heads / p.n_key_heads)),
        values_(static_cast<const __nv_bfloat16*>(p.values) + work.head * p.value_dim + work.first_column + warp_ * 16),
        width_(p.values_width),
        n_heads_(p.n_heads),
        n_key_heads_(p.n_key_heads) {}

  /// Before a barrier of the block.
  __device__ void start() const {
    if (threadIdx.x != 0) return;
    for (int stage = 0; stage < kChunkStages; ++stage) {
      barrier_init(full(stage), kCopies);
      barrier_init(empty(stage), kGroups * 4);
    }
#ifdef BATON_SM90A
    show_barriers_to_copies();
#endif
  }
  /// Begins to copy for chunk number `i` of the block, if there is one, when all warps have left number i - kChunkStages.
  __device__ void copy(int i) const {
    const int stage = i % kChunkStages;
    if (i < work_.last_chunk - work_.first_chunk) {
      const ChunkKeys& keys = keys_[static_cast<std::int64_t>(i) * n_key_heads_];
      const ChunkMatrices& matrices = matrices_[static_cast<std::int64_t>(i) * n_heads_];
      if (threadIdx.x < kCopies) {
        barrier_wait(empty(stage), i / kChunkStages % 2 ^ 1);
#ifdef BATON_SM90A
        barrier_expect(full(stage), sizeof(typename Shared::Image) + sizeof(ChunkFactors));
#endif
        copy_operand(shared_address(&s_.images[stage].keys), &keys, sizeof(ChunkKeys), stage);
        copy_operand(shared_address(s_.images[stage].matrices), Shared::kHasT ? &matrices.t : &matrices.a,
                     sizeof(Shared::Image::matrices), stage);
        copy_operand(shared_address(&s_.factors[stage]), &matrices.factors, sizeof(ChunkFactors), stage);
#ifndef BATON_SM90A
        arrive_with_copies(full(stage));
#endif
      }
      copy_values(work_.first_chunk + i, shared_address(s_.values[stage][warp_ / 4]));
    }
    commit_copies();
  }
  __device__ void wait(int i) const {
    barrier_wait(full(i % kChunkStages), i / kChunkStages % 2);
    wait_for_copy_groups<1>();
    __syncwarp();
  }
  __device__ void leave(int i) const {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) barrier_arrive(empty(i % kChunkStages));
  }

 private:
#ifdef BATON_SM90A
  static constexpr int kCopies = 1;  ///< threads that copy operands
  __device__ void copy_operand(std::uint32_t to, const void* from, int n_bytes, int stage) const {
    copy_bytes(to, from, n_bytes, full(stage), read_once_policy());
  }
#else
  static constexpr int kCopies = Shared::kThreads;
  __device__ void copy_operand(std::uint32_t to, const void* from, int n_bytes, int) const {
    for (int i = static_cast<int>(threadIdx.x) * 16; i < n_bytes; i += kCopies * 16)
      copy_16(to + i, static_cast<const std::byte*>(from) + i);
  }
#endif
  /// The warp's 16 columns; rows that the chunk does not have become 0.
  __device__ void copy_values(int chunk, std::uint32_t tile) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int n_rows = work_.n_rows(chunk);
    const __nv_bfloat16* const from = values_ + work_.first_row(chunk) * width_;
#pragma unroll
    for (int j = lane; j < kStateChunk * 2; j += kWarpSize) {
      const int row = j / 2;
      copy_16_or_zeros(tile + swizzled_byte(row, warp_ % 4 * 2 + j % 2), from + (row < n_rows ? row : 0) * width_ + j % 2 * 8,
                       row < n_rows);
    }
  }
  __device__ std::uint32_t full(int stage) const { return shared_address(&s_.full[stage]); }
  __device__ std::uint32_t empty(int stage) const { return shared_address(&s_.empty[stage]); }

  int warp_ = static_cast<int>(threadIdx.x) / kWarpSize;
  Shared& s_;
  const ScanWork& work_;
  const ChunkMatrices* matrices_;
  const ChunkKeys* keys_;
  const __nv_bfloat16* values_;
  std::int64_t width_;
  int n_heads_;
  int n_key_heads_;
};

/// Stores outputs of a chunk.
template <ChunkRule kRule>
class OutputWriter {
 public:
  __device__ OutputWriter(const ChunkScanParams& p, const ScanWork& work, const ScanConsumer<kRule>& consumer, int first_column)
      : p_(p),
        width_(static_cast<std::int64_t>(p.n_heads) * p.value_dim),
        first_(work.head * p.value_dim + work.first_column + first_column),
        consumer_(consumer) {}

  __device__ void begin(std::int64_t first_row, int n_rows) {
    first_row_ = first_row;
    n_rows_ = n_rows;
  }
  __device__ __forceinline__ void operator()(const float (&out)[8][4]) const {
    switch (p_.out_dtype) {
      case DType::bf16: return store_transposed<__nv_bfloat16>(out);
      case DType::f16: return store_transposed<__half>(out);
      default: return store_as_is(out);
    }
  }

 private:
  __device__ __forceinline__ void store_as_is(const float (&out)[8][4]) const {
    const int row = consumer_.pair();
    float* to = static_cast<float*>(p_.out) + (first_row_ + row) * width_ + first_ + consumer_.column();
#pragma unroll
    for (int n = 0; n < 8; ++n, to += 8 * width_)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (8 * n + row + e % 2 < n_rows_) to[e % 2 * width_ + e / 2 * 8] = out[n][e];
  }
  /// A lane gets two columns of one row of each 8 x 8 that its warp has.
  template <class T>
  __device__ __forceinline__ void store_transposed(const float (&out)[8][4]) const {
    const int row = static_cast<int>(threadIdx.x) % kWarpSize / 4;
    T* to = static_cast<T*>(p_.out) + (first_row_ + row) * width_ + first_ + consumer_.column() - row + consumer_.pair();
#pragma unroll
    for (int n = 0; n < 8; ++n, to += 8 * width_)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t pair = transpose_8x8(pack_pair<T>(out[n][2 * half], out[n][2 * half + 1]));
        if (8 * n + row < n_rows_) *reinterpret_cast<std::uint32_t*>(to + 8 * half) = pair;
      }
  }

  const ChunkScanParams& p_;
  std::int64_t width_;
  int first_;  ///< of the warpgroup's columns in a row
  const ScanConsumer<kRule>& consumer_;
  std::int64_t first_row_ = 0;
  int n_rows_ = 0;
};

/// The states are numbers T: no branch on their type, beside which matmuls would not overlap.
template <ChunkRule kRule, int kGroups, class T>
__global__ void __launch_bounds__(ScanShared<kRule, kGroups>::kThreads, 1)
    chunk_scan_kernel(const __grid_constant__ ChunkScanParams p, ChunkRange range,
                      const __grid_constant__ ChunkOperands operands) {
  extern __shared__ __align__(1024) std::byte scan_shared[];
  auto& s = *reinterpret_cast<ScanShared<kRule, kGroups>*>(scan_shared);
  wait_for_kernel_before();
  let_next_kernel_start();  // not before: a first kernel that overlaps does not wait for what this one waits for
  ScanWork work;
  if (!find_work(p, range, kGroups * kGroupColumns, work)) return;
  const ScanCopies<kRule, kGroups> copies(p, operands, work, s);
  copies.start();
  __syncthreads();
  copies.copy(0);
  const int group = static_cast<int>(threadIdx.x) / 128;
  const std::int64_t in_slot =
      static_cast<std::int64_t>(work.head) * kChunkKeyDim * p.value_dim + work.first_column + group * 64;
  const std::int32_t from_slot = work.first_chunk == 0 ? work.run.read_slot : work.run.write_slot;
  ScanConsumer<kRule> consumer;
  if (from_slot == StateRun::kZeroState)
    consumer.clear_state();
  else
    consumer.load_state(matrices_of<T>(p.matrices, from_slot) + in_slot, p.value_dim);
  OutputWriter<kRule> writer(p, work, consumer, group * kGroupColumns);
  const float skip = kRule == ChunkRule::mamba2 ? p.skip[work.head] : 0;
#pragma unroll 1
  for (int i = 0; i < work.last_chunk - work.first_chunk; ++i) {
    const int stage = i % kChunkStages;
    copies.copy(i + 1);
    copies.wait(i);
    const int chunk = work.first_chunk + i;
    writer.begin(work.first_row(chunk), work.n_rows(chunk));
    const auto& matrices = s.images[stage].matrices;
    consumer.chunk(
        {shared_address(&s.images[stage].keys), shared_address(matrices),
         shared_address(matrices[ScanShared<kRule, kGroups>::kMatrixTiles - kOperandParts]),
         shared_address(s.values[stage][group]), &s.factors[stage]},
        skip, [&] { copies.leave(i); }, writer);
  }
  consumer.store_state(matrices_of<T>(p.matrices, work.run.write_slot) + in_slot, p.value_dim);
}

template <ChunkRule kRule, int kGroups>
void launch_of_groups(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkOperands& operands,
                      std::int64_t n_runs) {
  constexpr int kBytes = sizeof(ScanShared<kRule, kGroups>);
  auto* kernel = params.matrices.dtype == DType::bf16 ? chunk_scan_kernel<kRule, kGroups, __nv_bfloat16>
                                                      : chunk_scan_kernel<kRule, kGroups, float>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "chunk_scan");
  const int n_slabs = params.value_dim / (kGroups * kGroupColumns);
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(params.n_heads * n_slabs), static_cast<unsigned>(n_runs)),
                    ScanShared<kRule, kGroups>::kThreads, kBytes, "chunk_scan", params, range, operands);
}

template <ChunkRule kRule>
void launch_of_rule(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkOperands& operands,
                    std::int64_t n_runs) {
  // Two warpgroups of a block share the operands and overlap, but blocks of one occupy more multiprocessors.
  const bool has_pairs = params.value_dim % (2 * kGroupColumns) == 0;
  const bool fits_alone = n_runs * params.n_heads * (params.value_dim / kGroupColumns) <= device.n_multiprocessors;
  if (has_pairs && !fits_alone) return launch_of_groups<kRule, 2>(device, params, range, operands, n_runs);
  launch_of_groups<kRule, 1>(device, params, range, operands, n_runs);
}

}  // namespace

bool runs_chunk_scan(const Device& device) {
  // The form by mma.sync has not run on a device before sm_90 yet (workshop/12_delta_rule.cu, before90).
  return device.compute_capability >= 90 && device.max_shared_bytes >= sizeof(ScanShared<ChunkRule::delta, 2>);
}

void launch_chunk_scan(const Device& device, ChunkRule rule, const ChunkScanParams& params, ChunkRange range,
                       const ChunkOperands& operands, std::int64_t n_runs) {
  if (rule == ChunkRule::delta) return launch_of_rule<ChunkRule::delta>(device, params, range, operands, n_runs);
  launch_of_rule<ChunkRule::mamba2>(device, params, range, operands, n_runs);
}

}  // namespace baton::cuda
