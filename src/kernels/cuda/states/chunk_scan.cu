/// The scan over chunks (chunk_scan.h): outputs and states, chunk after chunk. A block computes some columns of a head's values in
/// one run, each of its warpgroups 64 of them. What the next chunk needs is copied meanwhile, where shared memory has room for it.
#include "kernels/cuda/states/chunk_scan.h"

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/states/chunk_consumer.cuh"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_quads.cuh"

namespace baton::cuda {
namespace {

constexpr int kGroupColumns = 64;  ///< of a warpgroup

/// How a kernel multiplies, the warpgroups of its blocks, and the chunks that shared memory has room for, 1 or 2.
template <class MatmulsOfForm, int kGroupsOfForm, int kStagesOfForm>
struct ScanForm {
  using Matmuls = MatmulsOfForm;
  static constexpr int kGroups = kGroupsOfForm;
  static constexpr int kStages = kStagesOfForm;
  static constexpr int kThreads = kGroups * 128;
  static constexpr int kColumns = kGroups * kGroupColumns;
};

/// What a kernel computes: outputs and states of whole runs or of pieces, or the maps of pieces.
enum class ScanPass { whole, pieces, maps };

template <ChunkRule kRule, ScanPass kPass, class Form>
struct ScanShared {
  static constexpr bool kHasT = kRule == ChunkRule::delta;
  static constexpr bool kHasOutputs = kPass != ScanPass::maps;
  static constexpr int kMatrixTiles = ((kHasT ? 1 : 0) + (kHasOutputs ? 1 : 0)) * kOperandParts;
  static constexpr int kStages = Form::kStages;
  struct Image {
    ChunkTile keys[kHasOutputs ? 4 : 2];  ///< keys, and queries
    ChunkTile matrices[kMatrixTiles];     ///< T if there is one, and A
  };
  alignas(1024) Image images[kStages];
  ChunkTile values[kStages][Form::kGroups];
  ChunkFactors factors[kStages];
  alignas(8) std::uint64_t full[kStages];
  std::uint64_t empty[kStages];
};
static_assert(offsetof(ChunkMatrices, a) == sizeof(ChunkMatrices::t));
static_assert(offsetof(ChunkKeys, queries) == sizeof(ChunkKeys::keys));

/// The chunks of a block.
struct ScanWork {
  StateRun run;
  int head;
  int first_column;  ///< of the values; if is_map, of the identity
  int first_chunk;   ///< of the run
  int last_chunk;    ///< the one after
  int place;         ///< of the first in the operands
  int piece = 0;
  bool is_last = true;  ///< piece of the run in this range
  bool is_map = false;

  __device__ std::int64_t first_row(int chunk) const { return run.first_row + first_row_of(run, chunk); }
  __device__ int n_rows(int chunk) const { return min(first_row_of(run, chunk + 1), run.n_rows) - first_row_of(run, chunk); }
};

/// The number of chunks in runs before `run`. All lanes of a warp call it.
__device__ __forceinline__ int chunks_before(const Runs& runs, int run) {
  int n = 0;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < run; i += kWarpSize) n += chunks_of(runs.first[i]);
  return static_cast<int>(__reduce_add_sync(0xffffffffu, static_cast<unsigned>(n)));
}

/// The first of `n` chunks from which on the last states depend: those before it decay to zero, in float32, until the last is over. All
/// lanes of a warp call it.
__device__ __forceinline__ int first_that_lasts(const ChunkMatrices* matrices, int n_heads, int n) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float after = 1;  // the decay of all chunks from `end` on
  for (int end = n; end > 0; end -= kWarpSize) {
    const int i = end - 1 - lane;
    float decay = i >= 0 ? matrices[static_cast<std::int64_t>(i) * n_heads].factors.decay : 1;
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const float later = __shfl_up_sync(kAll, decay, distance);
      if (lane >= distance) decay *= later;
    }
    const unsigned vanish = __ballot_sync(kAll, decay * after == 0);
    if (vanish != 0) return end - __ffs(static_cast<int>(vanish));
    after *= __shfl_sync(kAll, decay, kWarpSize - 1);
  }
  return 0;
}

/// Whether there is any.
template <ScanPass kPass>
__device__ __forceinline__ bool find_work(const ChunkScanParams& p, ChunkRange range, const ChunkPieces& pieces, int n_columns,
                                          ScanWork& work) {
  constexpr bool kHasPieces = kPass != ScanPass::whole;
  const Runs runs = runs_of(p.step);
  const int run_index = kHasPieces ? 0 : static_cast<int>(blockIdx.y);
  if (run_index >= runs.n) return false;
  work.run = runs.first[run_index];
  const int before = chunks_before(runs, run_index);
  work.first_chunk = max(0, range.first - before);
  work.last_chunk = min(chunks_of(work.run), range.first + range.n - before);
  if constexpr (kHasPieces) {
    const int end = work.last_chunk;
    work.piece = static_cast<int>(blockIdx.y);
    work.first_chunk += work.piece * pieces.n_chunks;
    work.last_chunk = min(work.first_chunk + pieces.n_chunks, end);
    work.is_last = work.last_chunk == end;
  }
  work.place = before + work.first_chunk - range.first;
  const int n_value_slabs = p.value_dim / n_columns;
  const int n_slabs = n_value_slabs + (kPass == ScanPass::maps ? kChunkKeyDim / n_columns : 0);
  const int slab = static_cast<int>(blockIdx.x) % n_slabs;
  work.head = static_cast<int>(blockIdx.x) / n_slabs;
  if constexpr (kPass == ScanPass::maps) {
    work.is_map = slab >= n_value_slabs;
    if (work.is_last) return false;  // what follows the last piece is written with its outputs
  }
  work.first_column = (work.is_map ? slab - n_value_slabs : slab) * n_columns;
  return work.first_chunk < work.last_chunk;
}

/// Copies what chunks need: operands into stages that both warpgroups have left, values by the warp that reads them.
template <class Shared, class Form>
class ScanCopies {
 public:
  __device__ ScanCopies(const ChunkScanParams& p, const ChunkOperands& operands, const ScanWork& work, Shared& s)
      : s_(s),
        work_(work),
        matrices_(operands.matrices + static_cast<std::int64_t>(work.place) * p.n_heads + work.head),
        keys_(operands.keys + static_cast<std::int64_t>(work.place) * p.n_key_heads + work.head / (p.n_heads / p.n_key_heads)),
        values_(static_cast<const __nv_bfloat16*>(p.values) + work.head * p.value_dim +
                (work.is_map ? 0 : work.first_column + warp_ * 16)),
        width_(p.values_width),
        n_heads_(p.n_heads),
        n_key_heads_(p.n_key_heads) {}

  /// Before a barrier of the block.
  __device__ void start() const {
    if (threadIdx.x != 0) return;
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), kCopies);
      barrier_init(empty(stage), Form::kGroups * 4);
    }
#ifdef BATON_SM90A
    show_barriers_to_copies();
#endif
  }
  /// Begins to copy for chunk number `i` of the block, if there is one, when all warps have left number i - kStages.
  __device__ void copy(int i) const {
    const int stage = i % kStages;
    if (i < work_.last_chunk - work_.first_chunk) {
      const ChunkKeys& keys = keys_[static_cast<std::int64_t>(i) * n_key_heads_];
      const ChunkMatrices& matrices = matrices_[static_cast<std::int64_t>(i) * n_heads_];
      if (threadIdx.x < kCopies) {
        barrier_wait(empty(stage), i / kStages % 2 ^ 1);
#ifdef BATON_SM90A
        if constexpr (Form::Matmuls::kCopiesInBulk)
          barrier_expect(full(stage), sizeof(typename Shared::Image) + sizeof(ChunkFactors));
#endif
        copy_operand(shared_address(s_.images[stage].keys), &keys, sizeof(Shared::Image::keys), stage);
        copy_operand(shared_address(s_.images[stage].matrices), Shared::kHasT ? &matrices.t : &matrices.a,
                     sizeof(Shared::Image::matrices), stage);
        copy_operand(shared_address(&s_.factors[stage]), &matrices.factors, sizeof(ChunkFactors), stage);
        if constexpr (!Form::Matmuls::kCopiesInBulk) arrive_with_copies(full(stage));
      }
      copy_values(work_.first_chunk + i, shared_address(s_.values[stage][warp_ / 4]));
    }
    commit_copies();
  }
  __device__ void wait(int i) const {
    barrier_wait(full(i % kStages), i / kStages % 2);
    wait_for_copy_groups<kStages - 1>();
    __syncwarp();
  }
  __device__ void leave(int i) const {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) barrier_arrive(empty(i % kStages));
  }

 private:
  static constexpr int kStages = Form::kStages;
  static constexpr int kCopies = Form::Matmuls::kCopiesInBulk ? 1 : Form::kThreads;  ///< threads that copy operands
  __device__ void copy_operand(std::uint32_t to, const void* from, int n_bytes, int stage) const {
    if constexpr (Form::Matmuls::kCopiesInBulk) {
#ifdef BATON_SM90A
      copy_bytes(to, from, n_bytes, full(stage), read_once_policy());
#endif
    } else {
      for (int i = static_cast<int>(threadIdx.x) * 16; i < n_bytes; i += kCopies * 16)
        copy_16(to + i, static_cast<const std::byte*>(from) + i);
    }
  }
  /// The warp's 16 columns; rows that the chunk does not have become 0.
  __device__ void copy_values(int chunk, std::uint32_t tile) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int n_rows = work_.is_map ? 0 : work_.n_rows(chunk);
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
template <class Consumer>
class OutputWriter {
 public:
  __device__ OutputWriter(const ChunkScanParams& p, const ScanWork& work, const Consumer& consumer, int first_column)
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
  const Consumer& consumer_;
  std::int64_t first_row_ = 0;
  int n_rows_ = 0;
};

/// Of the state before piece `piece` in `pieces`.
__device__ __forceinline__ float* state_of_piece(const ChunkScanParams& p, const ChunkPieces& pieces, int piece) {
  return pieces.states + static_cast<std::int64_t>(piece) * p.n_heads * kChunkKeyDim * p.value_dim;
}

/// Those of a slot at number `at` of its matrices.
template <class T, class Consumer>
__device__ __forceinline__ void load_slot(const ChunkScanParams& p, std::int32_t slot, std::int64_t at, Consumer& consumer) {
  if (slot == StateRun::kZeroState)
    consumer.clear_state();
  else
    consumer.load_state(matrices_of<T>(p.matrices, slot) + at, p.value_dim);
}
/// The slot with the state before the range's first chunk of a run.
__device__ __forceinline__ std::int32_t slot_before(const ScanWork& work) {
  return work.first_chunk == 0 ? work.run.read_slot : work.run.write_slot;
}

template <ChunkRule kRule, ScanPass kPass, class Form, class T>
__device__ __forceinline__ void scan_chunks(const ChunkScanParams& p, ChunkRange range, const ChunkOperands& operands,
                                            const ChunkPieces& pieces, std::byte* shared) {
  using Shared = ScanShared<kRule, kPass, Form>;
  auto& s = *reinterpret_cast<Shared*>(shared);
  ScanWork work;
  if (!find_work<kPass>(p, range, pieces, Form::kColumns, work)) return;
  const ScanCopies<Shared, Form> copies(p, operands, work, s);
  copies.start();
  __syncthreads();
  if (Form::kStages > 1) copies.copy(0);
  const int group = static_cast<int>(threadIdx.x) / 128;
  const std::int64_t in_slot =
      static_cast<std::int64_t>(work.head) * kChunkKeyDim * p.value_dim + work.first_column + group * kGroupColumns;
  constexpr bool kIsPiece = kPass == ScanPass::pieces;
  using Consumer = ScanConsumer<kRule, typename Form::Matmuls, true>;
  Consumer consumer;
  if constexpr (kIsPiece)
    consumer.load_state(state_of_piece(p, pieces, work.piece) + in_slot, p.value_dim);
  else
    load_slot<T>(p, slot_before(work), in_slot, consumer);
  OutputWriter<Consumer> writer(p, work, consumer, group * kGroupColumns);
  const float skip = kRule == ChunkRule::mamba2 ? p.skip[work.head] : 0;
#pragma unroll 1
  for (int i = 0; i < work.last_chunk - work.first_chunk; ++i) {
    const int stage = i % Form::kStages;
    copies.copy(i + Form::kStages - 1);
    copies.wait(i);
    const int chunk = work.first_chunk + i;
    writer.begin(work.first_row(chunk), work.n_rows(chunk));
    const auto& matrices = s.images[stage].matrices;
    consumer.chunk(
        {shared_address(s.images[stage].keys), shared_address(matrices),
         shared_address(matrices[Shared::kMatrixTiles - kOperandParts]), shared_address(s.values[stage][group]),
         &s.factors[stage]},
        skip, [&] { copies.leave(i); }, writer);
  }
  if (!kIsPiece || work.is_last)
    consumer.store_state(matrices_of<T>(p.matrices, work.run.write_slot) + in_slot, p.value_dim, 1);
}

/// M and B; B goes into the place of the next piece's state.
template <class Form>
__device__ __forceinline__ void compute_maps(const ChunkScanParams& p, ChunkRange range, const ChunkOperands& operands,
                                             const ChunkPieces& pieces, std::byte* shared) {
  using Shared = ScanShared<ChunkRule::delta, ScanPass::maps, Form>;
  auto& s = *reinterpret_cast<Shared*>(shared);
  ScanWork work;
  if (!find_work<ScanPass::maps>(p, range, pieces, Form::kColumns, work)) return;
  const int first = first_that_lasts(operands.matrices + static_cast<std::int64_t>(work.place) * p.n_heads + work.head,
                                     p.n_heads, work.last_chunk - work.first_chunk);
  work.first_chunk += first;
  work.place += first;
  const bool vanishes = work.is_map && first > 0;
  if (vanishes) work.last_chunk = work.first_chunk;
  const ScanCopies<Shared, Form> copies(p, operands, work, s);
  copies.start();
  __syncthreads();
  if (Form::kStages > 1) copies.copy(0);
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int column = work.first_column + group * kGroupColumns;
  ScanConsumer<ChunkRule::delta, typename Form::Matmuls, false> consumer;
  consumer.load_identity(column, work.is_map && !vanishes ? 1 : 0);
#pragma unroll 1
  for (int i = 0; i < work.last_chunk - work.first_chunk; ++i) {
    const int stage = i % Form::kStages;
    copies.copy(i + Form::kStages - 1);
    copies.wait(i);
    consumer.chunk(
        {shared_address(s.images[stage].keys), shared_address(s.images[stage].matrices), 0,
         shared_address(s.values[stage][group]), &s.factors[stage]},
        0, [&] { copies.leave(i); }, [](const auto&) {});
  }
  const std::int64_t map = static_cast<std::int64_t>(work.piece) * p.n_heads + work.head;
  float* to =
      state_of_piece(p, pieces, work.piece + 1) + static_cast<std::int64_t>(work.head) * kChunkKeyDim * p.value_dim + column;
  if (work.is_map) to = pieces.maps + (map * kChunkKeyDim + column) * kChunkKeyDim;
  consumer.store_state(to, work.is_map ? 1 : p.value_dim, work.is_map ? kChunkKeyDim : 1);
}

/// The states in slots are numbers T.
template <ChunkRule kRule, ScanPass kPass, class Form, class T>
__global__ void __launch_bounds__(Form::kThreads, 1)
    chunk_scan_kernel(const __grid_constant__ ChunkScanParams p, ChunkRange range,
                      const __grid_constant__ ChunkOperands operands, const __grid_constant__ ChunkPieces pieces) {
  if constexpr (Form::Matmuls::kRuns) {
    extern __shared__ __align__(1024) std::byte scan_shared[];
    wait_for_kernel_before();
    let_next_kernel_start();  // not before: a first kernel that overlaps does not wait for what this one waits for
    if constexpr (kPass == ScanPass::maps)
      compute_maps<Form>(p, range, operands, pieces, scan_shared);
    else
      scan_chunks<kRule, kPass, Form, T>(p, range, operands, pieces, scan_shared);
  }
}

/// For `n_columns` columns of each head, `n` times.
template <ChunkRule kRule, ScanPass kPass, class Form>
void launch_of_form(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkOperands& operands,
                    std::int64_t n, const ChunkPieces& pieces) {
  constexpr const char* kWhat = kPass == ScanPass::maps ? "chunk_maps" : "chunk_scan";
  constexpr int kBytes = sizeof(ScanShared<kRule, kPass, Form>);
  auto* kernel = chunk_scan_kernel<kRule, kPass, Form, float>;
  if constexpr (kPass != ScanPass::maps)
    if (params.matrices.dtype == DType::bf16) kernel = chunk_scan_kernel<kRule, kPass, Form, __nv_bfloat16>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), kWhat);
  const int n_columns = params.value_dim + (kPass == ScanPass::maps ? kChunkKeyDim : 0);
  const dim3 grid(static_cast<unsigned>(params.n_heads * (n_columns / Form::kColumns)), static_cast<unsigned>(n));
  launch_overlapped(device, kernel, grid, Form::kThreads, kBytes, kWhat, params, range, operands, pieces);
}

template <ChunkRule kRule, ScanPass kPass, int kGroups>
void launch_of_groups(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkOperands& operands,
                      std::int64_t n, const ChunkPieces& pieces) {
  using Wgmma = ScanForm<ByWgmma, kGroups, 2>;
  using Mma = ScanForm<ByMma, kGroups, 2>;
  if (device.compute_capability == 90) return launch_of_form<kRule, kPass, Wgmma>(device, params, range, operands, n, pieces);
  if (sizeof(ScanShared<kRule, kPass, Mma>) <= device.max_shared_bytes)
    return launch_of_form<kRule, kPass, Mma>(device, params, range, operands, n, pieces);
  launch_of_form<kRule, kPass, ScanForm<ByMma, kGroups, 1>>(device, params, range, operands, n, pieces);
}

/// `n`: runs or pieces.
template <ChunkRule kRule, ScanPass kPass>
void launch_pass(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkOperands& operands,
                 std::int64_t n, const ChunkPieces& pieces) {
  // Two warpgroups of a block share the operands and overlap, but blocks of one occupy more multiprocessors.
  const bool fits_alone = n * params.n_heads * (params.value_dim / kGroupColumns) <= device.n_multiprocessors;
  if (has_pairs(params) && !fits_alone) return launch_of_groups<kRule, kPass, 2>(device, params, range, operands, n, pieces);
  launch_of_groups<kRule, kPass, 1>(device, params, range, operands, n, pieces);
}

}  // namespace

bool runs_chunk_scan(const Device& device) {
  return device.max_shared_bytes >= sizeof(ScanShared<ChunkRule::delta, ScanPass::whole, ScanForm<ByMma, 2, 1>>);
}

void launch_chunk_scan(const Device& device, ChunkRule rule, const ChunkScanParams& params, ChunkRange range,
                       const ChunkOperands& operands, std::int64_t n_runs, const ChunkPieces& pieces) {
  if (pieces.n > 1) return launch_pass<ChunkRule::delta, ScanPass::pieces>(device, params, range, operands, pieces.n, pieces);
  if (rule == ChunkRule::delta)
    return launch_pass<ChunkRule::delta, ScanPass::whole>(device, params, range, operands, n_runs, pieces);
  launch_pass<ChunkRule::mamba2, ScanPass::whole>(device, params, range, operands, n_runs, pieces);
}

void launch_chunk_maps(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkOperands& operands,
                       const ChunkPieces& pieces) {
  const auto launch = [&](auto* of_groups) { of_groups(device, params, range, operands, pieces.n - 1, pieces); };
  if (has_pairs(params)) return launch(launch_of_groups<ChunkRule::delta, ScanPass::maps, 2>);
  launch(launch_of_groups<ChunkRule::delta, ScanPass::maps, 1>);
}

}  // namespace baton::cuda
