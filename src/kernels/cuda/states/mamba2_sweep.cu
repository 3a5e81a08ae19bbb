/// Mamba-2 on a CUDA device as a sweep (state_sweep.cuh), for heads of 128 x 64.
#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/mamba2_rows.cuh"
#include "kernels/cuda/states/mamba2_rule.h"
#include "kernels/cuda/states/state_sweep.cuh"

namespace baton::cuda {

// Outside of an anonymous namespace, because before sm_90 nothing calls its functions.
class Mamba2Sweep {
 public:
  static constexpr int kValueDim = 64;
  template <class T>
  static constexpr int kBlocks = sizeof(T) == sizeof(float) ? 1 : 2;
  template <class T>
  static constexpr int kStages = sizeof(T) == sizeof(float) ? 6 : 5;
  using Params = Mamba2Params;
  using Layout = SweepLayout<kValueDim>;
  struct Row {
    alignas(16) float b[kSweepKeyDim];
    alignas(16) float c[kSweepKeyDim];
    alignas(16) float x[kValueDim];
    float decay;
    float step;
    float skip;
  };
  struct RawRow {
    alignas(16) float b[kSweepKeyDim];  ///< or 16-bit numbers, as C and x
    alignas(16) float c[kSweepKeyDim];
    alignas(16) float x[kValueDim];
    float dt;  ///< or the four bytes in which it lies
    float a_log;
    float dt_bias;
    float skip;
  };
  using Sums = Layout::Sums;

  static __device__ int row_bytes(const Params& p) { return (2 * kSweepKeyDim + kValueDim) * element_bytes(p); }
  template <class Ring>
  static __device__ void copy_row(const Params& p, int head, const RunRow& of, const Ring& ring, int i) {
    const Mamba2Row row(p, of.row);
    RawRow& to = ring.row(i);
    const auto* const xbc = static_cast<const std::byte*>(of.inputs(p.xbc, p.kept));
    const auto copy = [&](const float* numbers, std::int64_t at, int n) {
      ring.copy_row(i, numbers, xbc + at * element_bytes(p), n * element_bytes(p));
    };
    const int group = head / (p.n_heads / p.n_groups);
    copy(to.b, row.b(group), kSweepKeyDim);
    copy(to.c, row.c(group), kSweepKeyDim);
    copy(to.x, row.x(head), kValueDim);
    ring.copy_number(to.dt, of.is_replayed ? of.kept + p.kept.gates + head
                                           : static_cast<const float*>(p.dt) + dt_index(p, head, of.row) / dt_in_word(p));
    ring.copy_number(to.a_log, p.a_log + head);
    ring.copy_number(to.dt_bias, p.dt_bias + head);
    ring.copy_number(to.skip, p.skip + head);
  }

  __device__ Mamba2Sweep(const Params& p, int head, const RawRow& first, const StateRun& run)
      : p_(p),
        head_(head),
        group_(head / (p.n_heads / p.n_groups)),
        gates_(p, head, first.a_log, first.dt_bias),
        skip_(first.skip),
        first_(&first),
        of_(row_of(run, p.kept, 0)) {}
  /// The row that is prepared next, in place of the unit's first.
  __device__ void fetch(const RunRow& of) {
    first_ = nullptr;
    of_ = of;
  }
  __device__ void prepare(Row& to) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int i = thread % kSweepKeyDim;
    const bool is_raw = first_ != nullptr;
    const void* const xbc = of_.inputs(p_.xbc, p_.kept);
    const Mamba2Row row(p_, of_.row);
    if (thread < kSweepKeyDim)
      to.b[i] = load(is_raw ? first_->b : xbc, p_.xbc_dtype, is_raw ? i : row.b(group_) + i);
    else
      to.c[i] = load(is_raw ? first_->c : xbc, p_.xbc_dtype, is_raw ? i : row.c(group_) + i);
    if (thread < kValueDim)
      to.x[thread] = load(is_raw ? first_->x : xbc, p_.xbc_dtype, is_raw ? thread : row.x(head_) + thread);
    if (thread != kSweepThreads - 1) return;
    to.step = gates_.step(is_raw ? first_dt() : gates_.load_dt(p_, of_, true));
    to.decay = expf(gates_.log_decay(to.step));
    to.skip = skip_;
  }

  /// `index`: of the outputs; -1: none. `between` is called when all threads have summed.
  template <class Between>
  __device__ __forceinline__ void compute(const Row& row, std::int64_t index, Sums& sums, Layout::State& state,
                                          Between&& between) const {
    const int column = Layout::column();
    float x[kStateQuad];
    load_f32(&row.x[column], x);
    float written[kStateQuad];
#pragma unroll
    for (int c = 0; c < kStateQuad; ++c) written[c] = row.step * x[c];
#pragma unroll
    for (int pass = 0; pass < Layout::kPasses; ++pass) {
      float b[Layout::kRows];
      load_f32(&row.b[Layout::row(pass, 0)], b);
#pragma unroll
      for (int i = 0; i < Layout::kRows; ++i)
#pragma unroll
        for (int c = 0; c < kStateQuad; ++c) state[pass][i][c] = fmaf(b[i], written[c], row.decay * state[pass][i][c]);
    }
    Layout::sum(row.c, state, sums);
    between();
    if (threadIdx.x >= Layout::kLanes || index < 0) return;
    float out[kStateQuad];
    join_warps(sums, column, out);
#pragma unroll
    for (int c = 0; c < kStateQuad; ++c) out[c] = fmaf(row.skip, x[c], out[c]);
    store_quad(p_.out, p_.out_dtype, (index * p_.n_heads + head_) * kValueDim + column, out);
  }

 private:
  static __device__ int element_bytes(const Params& p) { return p.xbc_dtype == DType::f32 ? 4 : 2; }
  static __device__ int dt_in_word(const Params& p) { return p.dt_dtype == DType::f32 ? 1 : 2; }
  static __device__ std::int64_t dt_index(const Params& p, int head, std::int64_t row) {
    return row * p.dt_columns + p.first_dt + head;
  }

  __device__ float first_dt() const {
    if (of_.is_replayed) return first_->dt;
    return load(&first_->dt, p_.dt_dtype, dt_index(p_, head_, of_.row) % dt_in_word(p_));
  }

  const Params& p_;
  int head_;
  int group_;
  Mamba2Gates gates_;
  float skip_;
  const RawRow* first_;
  RunRow of_;
};

bool runs_mamba2_sweep(const Device& device, const Mamba2Params& params) {
  return runs_sweep<Mamba2Sweep>(device, params) && is_aligned(params.xbc, 16) && is_aligned(params.dt, 4);
}

void launch_mamba2_sweep(const Device& device, const Mamba2Params& params, std::int64_t n_runs) {
  launch_sweep<Mamba2Sweep>(device, params, n_runs, "mamba2_scan");
}

}  // namespace baton::cuda
