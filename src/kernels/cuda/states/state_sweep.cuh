/// A sweep: few rows of many sequences go through recurrent layers by blocks that take the matrices of all heads and sequences in
/// turn. A block holds one in registers while the next ones are copied to shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_quads.cuh"

namespace baton::cuda {

/// A head of a run, whose matrix a block changes. run -1: there are no more.
struct StateUnit {
  int run = -1;
  int head = 0;
};

/// The units of a block: every gridDim.x-th head of the runs with at most `most_rows` rows.
class StateWalk {
 public:
  __device__ StateWalk(const Runs& runs, int n_heads, int most_rows)
      : runs_(runs), n_heads_(n_heads), most_rows_(most_rows), next_(static_cast<int>(blockIdx.x)) {}

  __device__ StateUnit next() {
    for (; next_ < runs_.n * n_heads_; next_ += static_cast<int>(gridDim.x)) {
      const int run = next_ / n_heads_;
      if (runs_.first[run].n_rows > most_rows_) continue;
      const StateUnit unit{run, next_ - run * n_heads_};
      next_ += static_cast<int>(gridDim.x);
      return unit;
    }
    return {};
  }

 private:
  Runs runs_;
  int n_heads_;
  int most_rows_;
  int next_;
};

/// Of a StateRing.
template <class T, int kNumbers, class Row, int kStages>
struct StateRingMemory {
  alignas(128) T matrices[kStages][kNumbers];
  alignas(128) Row rows[kStages];
  alignas(8) std::uint64_t barriers[kStages];
};

#ifdef BATON_SM90A

/// kStages matrices of kNumbers numbers T in shared memory, each with what its run's first row needs and a barrier. The matrices of a
/// block take the stages in turn; one thread begins the copies. Rows come this way because a block that loads them when it needs
/// them waits until all matrices that were asked for before have come.
template <class T, int kNumbers, class Row, int kStages>
class StateRing {
 public:
  using Memory = StateRingMemory<T, kNumbers, Row, kStages>;

  __device__ explicit StateRing(Memory& memory) : memory_(memory) {}

  /// By one thread, before a barrier of the block.
  __device__ void start() const {
    for (int stage = 0; stage < kStages; ++stage) barrier_init(barrier(stage), 2);
    show_barriers_to_copies();
  }
  /// By the same thread: begins to copy the block's matrix number `i`, after all threads have read number i - kStages. Null: none.
  /// `n_row_bytes`: of the row, by copy_row.
  __device__ void copy_matrix(int i, const T* from, int n_row_bytes) const {
    constexpr int kPieces = 4;
    constexpr int kPieceNumbers = kNumbers / kPieces;
    constexpr int kPieceBytes = kPieceNumbers * static_cast<int>(sizeof(T));
    const std::uint32_t to = shared_address(memory_.matrices[i % kStages]);
    barrier_expect(barrier(i), (from == nullptr ? 0 : kPieces * kPieceBytes) + n_row_bytes);
    if (from == nullptr) return;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
      copy_bytes(to + piece * kPieceBytes, from + piece * kPieceNumbers, kPieceBytes, barrier(i), read_once_policy());
  }
  /// By the same thread: copies a part of row number `i`.
  __device__ void copy_row(int i, const void* to, const void* from, int n_bytes) const {
    copy_bytes(shared_address(to), from, n_bytes, barrier(i), read_once_policy());
  }
  __device__ void copy_number(float& to, const float* from) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&to)), "l"(from) : "memory");
  }
  /// By the same thread, after all parts of the row.
  __device__ void end_row(int i) const { arrive_with_copies(barrier(i)); }
  __device__ Row& row(int i) const { return memory_.rows[i % kStages]; }
  /// Waits for matrix and row number `i`.
  __device__ const T* wait(int i) const {
    barrier_wait(barrier(i), i / kStages % 2);
    return memory_.matrices[i % kStages];
  }

 private:
  __device__ std::uint32_t barrier(int i) const { return shared_address(&memory_.barriers[i % kStages]); }

  Memory& memory_;
};

#endif  // BATON_SM90A

inline constexpr int kSweepThreads = 256;
inline constexpr int kSweepWarps = kSweepThreads / kWarpSize;
inline constexpr int kSweepKeyDim = 128;

/// How the threads of a block share a matrix of kSweepKeyDim rows and kColumns columns: each has four columns of kRows neighbouring
/// rows in each of kPasses passes. The kernels that compute row by row add over the rows of a matrix in this order as well (over
/// the passes, then over four neighbours in pairs, then over warps), so that both give the same bits.
template <int kColumns>
struct SweepLayout {
  static constexpr int kLanes = kColumns / kStateQuad;  ///< that have all columns of a row
  static constexpr int kGroups = kWarpSize / kLanes;    ///< of lanes in a warp
  static constexpr int kRows = 4 / kGroups;
  static constexpr int kPasses = kSweepKeyDim / (4 * kSweepWarps);
  static_assert(kGroups == 1 || kGroups == 2);
  using State = float[kPasses][kRows][kStateQuad];
  using Sums = float[kSweepWarps][kColumns];

  /// The matrix's row of the thread's quad in a pass, and its column.
  static __device__ __forceinline__ int row(int pass, int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return (pass * kSweepWarps + thread / kWarpSize) * 4 + thread % kWarpSize / kLanes * kRows + i;
  }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % kLanes * kStateQuad; }

  /// The warp's part of the sums of x times the rows of the state, into `sums`.
  static __device__ __forceinline__ void sum(const float (&x)[kSweepKeyDim], const State& state, Sums& sums) {
    float of_row[kRows][kStateQuad] = {};
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      float factors[kRows];
      load_f32(&x[row(pass, 0)], factors);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int c = 0; c < kStateQuad; ++c) of_row[i][c] = fmaf(factors[i], state[pass][i][c], of_row[i][c]);
    }
    float sum[kStateQuad];
#pragma unroll
    for (int c = 0; c < kStateQuad; ++c) {
      sum[c] = of_row[0][c] + of_row[1][c];
      if constexpr (kGroups == 1)
        sum[c] += of_row[2][c] + of_row[3][c];
      else
        sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], kLanes);
    }
    if (static_cast<int>(threadIdx.x) % kWarpSize < kLanes)
      store_f32(sum, &sums[static_cast<int>(threadIdx.x) / kWarpSize][column()]);
  }
};

template <class Layout, class T>
__device__ __forceinline__ void round_state(typename Layout::State& state) {
#pragma unroll
  for (int pass = 0; pass < Layout::kPasses; ++pass)
#pragma unroll
    for (int i = 0; i < Layout::kRows; ++i) round_state_quad<T>(state[pass][i]);
}

/// A rule's rows in a sweep. Rule::RawRow has the inputs of a row as they are in memory, Rule::Row as the rule needs them, and
/// Rule::Sums what the warps of a block add. A Rule is made by each thread. The states are numbers T. Rule::kBlocks<T> blocks of
/// Rule::kStages<T> matrices are on a multiprocessor: of two, one reads while the other waits between two matrices.
template <class Rule, class T>
inline constexpr int kSweepStages = Rule::template kStages<T>;
template <class Rule, class T>
inline constexpr int kSweepBlocks = Rule::template kBlocks<T>;
template <class Rule, class T>
struct SweepMemory {
  StateRingMemory<T, kSweepKeyDim * Rule::kValueDim, typename Rule::RawRow, kSweepStages<Rule, T>> ring;
  typename Rule::Row rows[3];  ///< the row before may still be read where the next is written
  typename Rule::Sums sums[2];
};

#ifdef BATON_SM90A

/// The copying thread's way through the units of its block.
template <class Rule, class T>
class SweepCopies {
 public:
  static constexpr int kMatrix = kSweepKeyDim * Rule::kValueDim;
  using Params = typename Rule::Params;
  using Ring = StateRing<T, kMatrix, typename Rule::RawRow, kSweepStages<Rule, T>>;

  __device__ SweepCopies(const Params& p, const Runs& runs, const Ring& ring)
      : p_(p), runs_(runs), ring_(ring), matrices_(runs, p.n_heads, p.most_rows), rows_(matrices_) {}

  /// The matrix of the next unit, whose number is i.
  __device__ void copy_matrix(int i) {
    const StateUnit unit = matrices_.next();
    if (unit.run < 0) return;
    const StateRun& run = runs_.first[unit.run];
    const T* const from = matrices_of<T>(p_.matrices, run.read_slot) + static_cast<std::int64_t>(unit.head) * kMatrix;
    ring_.copy_matrix(i, run.read_slot == StateRun::kZeroState ? nullptr : from,
                      run.n_replayed + run.n_rows > 0 ? Rule::row_bytes(p_) : 0);
  }
  /// And its first row.
  __device__ void copy_row(int i) {
    const StateUnit unit = rows_.next();
    if (unit.run < 0) return;
    const StateRun& run = runs_.first[unit.run];
    if (run.n_replayed + run.n_rows > 0) Rule::copy_row(p_, unit.head, row_of(run, p_.kept, 0), ring_, i);
    ring_.end_row(i);
  }

 private:
  const Params& p_;
  Runs runs_;
  const Ring& ring_;
  StateWalk matrices_;
  StateWalk rows_;
};

template <class Rule, class T>
__device__ __forceinline__ void sweep(const typename Rule::Params& p, SweepMemory<Rule, T>& s) {
  using Layout = SweepLayout<Rule::kValueDim>;
  using Copies = SweepCopies<Rule, T>;
  constexpr int kStages = kSweepStages<Rule, T>;
  const Runs runs = runs_of(p.step);
  const typename Copies::Ring ring(s.ring);
  const bool copies_units = threadIdx.x == 0;
  Copies copies(p, runs, ring);
  if (copies_units) {
    ring.start();
    for (int i = 0; i < kStages; ++i) copies.copy_matrix(i);
  }
  wait_for_kernel_before();
  if (copies_units)
    for (int i = 0; i < kStages; ++i) copies.copy_row(i);
  StateWalk walk(runs, p.n_heads, p.most_rows);
  int n_rows = 0;  // so far
  __syncthreads();
  StateUnit unit = walk.next();
  for (int i = 0; unit.run >= 0; ++i, unit = walk.next()) {
    const StateRun run = runs.first[unit.run];
    const T* const from = ring.wait(i);
    const int n_of_run = run.n_replayed + run.n_rows;
    const int first_draft = n_of_run - run.n_drafts;
    Rule rule(p, unit.head, ring.row(i), run);
    if (n_of_run > 0) rule.prepare(s.rows[n_rows % 3]);
    typename Layout::State state;
#pragma unroll
    for (int pass = 0; pass < Layout::kPasses; ++pass)
#pragma unroll
      for (int j = 0; j < Layout::kRows; ++j) {
        if (run.read_slot != StateRun::kZeroState)
          load_f32(from + Layout::row(pass, j) * Rule::kValueDim + Layout::column(), state[pass][j]);
        else
          for (float& x : state[pass][j]) x = 0;
      }
    __syncthreads();  // the row is there, and all have read the stage
    if (copies_units) {
      copies.copy_matrix(i + kStages);
      copies.copy_row(i + kStages);
    }
    const auto write_state = [&] {
      T* const to = matrices_of<T>(p.matrices, run.write_slot) + static_cast<std::int64_t>(unit.head) * Copies::kMatrix;
#pragma unroll
      for (int pass = 0; pass < Layout::kPasses; ++pass)
#pragma unroll
        for (int j = 0; j < Layout::kRows; ++j)
          store_state_quad(state[pass][j], to + Layout::row(pass, j) * Rule::kValueDim + Layout::column());
    };
    for (int r = 0; r < n_of_run; ++r, ++n_rows) {
      if (r == first_draft) write_state();
      const bool has_next = r + 1 < n_of_run;
      if (has_next) rule.fetch(row_of(run, p.kept, r + 1));
      rule.compute(s.rows[n_rows % 3], r < run.n_replayed ? -1 : run.first_row + r - run.n_replayed, s.sums[n_rows % 2], state,
                   [&] {
                     if (has_next) rule.prepare(s.rows[(n_rows + 1) % 3]);
                     __syncthreads();
                   });
      round_state<Layout, T>(state);
    }
    if (run.n_drafts == 0) write_state();
  }
}

#endif  // BATON_SM90A

template <class Rule, class T>
__global__ void __launch_bounds__(kSweepThreads, kSweepBlocks<Rule, T>)
    sweep_kernel(const __grid_constant__ typename Rule::Params p) {
#ifdef BATON_SM90A
  extern __shared__ __align__(128) std::byte sweep_shared[];
  let_next_kernel_start();
  sweep<Rule, T>(p, *reinterpret_cast<SweepMemory<Rule, T>*>(sweep_shared));
#endif
}

template <class Rule>
bool runs_sweep(const Device& device, const typename Rule::Params& params) {
  return device.compute_capability >= 90 && params.key_dim == kSweepKeyDim && params.value_dim == Rule::kValueDim &&
         params.matrices.slot_stride % (2 * kStateQuad) == 0 &&
         device.max_shared_bytes >= std::max(sizeof(SweepMemory<Rule, float>), sizeof(SweepMemory<Rule, __nv_bfloat16>));
}

template <class Rule, class T>
void launch_sweep_of(const Device& device, const typename Rule::Params& params, std::int64_t n_runs, const char* what) {
  constexpr int kBytes = sizeof(SweepMemory<Rule, T>);
  auto* kernel = sweep_kernel<Rule, T>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), what);
  const auto n_blocks = std::min<std::int64_t>(kSweepBlocks<Rule, T> * device.n_multiprocessors, n_runs * params.n_heads);
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_blocks)), kSweepThreads, kBytes, what, params);
}

template <class Rule>
void launch_sweep(const Device& device, const typename Rule::Params& params, std::int64_t n_runs, const char* what) {
  if (params.matrices.dtype == DType::bf16) return launch_sweep_of<Rule, __nv_bfloat16>(device, params, n_runs, what);
  launch_sweep_of<Rule, float>(device, params, n_runs, what);
}

}  // namespace baton::cuda
