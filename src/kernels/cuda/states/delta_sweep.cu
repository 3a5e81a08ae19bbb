/// The gated delta rule on a CUDA device as a sweep (state_sweep.cuh), for heads of 128 x 128.
#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/states/delta_rows.cuh"
#include "kernels/cuda/states/delta_rule.h"
#include "kernels/cuda/states/state_sweep.cuh"

namespace baton::cuda {

// Outside of an anonymous namespace, because before sm_90 nothing calls its functions.
class DeltaSweep {
 public:
  static constexpr int kValueDim = 128;
  template <class T>
  static constexpr int kBlocks = 2;
  template <class T>
  static constexpr int kStages = static_cast<int>(sizeof(float) / sizeof(T));
  using Params = DeltaRuleParams;
  using Layout = SweepLayout<kValueDim>;
  using Row = DeltaRow<kValueDim, kSweepKeyDim>;
  struct RawRow {
    alignas(16) float queries[kSweepKeyDim];  ///< or 16-bit numbers, as the keys and values
    alignas(16) float keys[kSweepKeyDim];
    alignas(16) float values[kValueDim];
    float gates[2];
    float a_log;
    float dt_bias;
  };
  struct Sums {
    alignas(16) Layout::Sums of_k;
    alignas(16) Layout::Sums of_q;
  };

  static __device__ int row_bytes(const Params& p) { return (2 * kSweepKeyDim + kValueDim) * element_bytes(p); }
  template <class Ring>
  static __device__ void copy_row(const Params& p, int head_index, const RunRow& of, const Ring& ring, int i) {
    const DeltaHead head(p, head_index, 0, 0);
    RawRow& to = ring.row(i);
    const auto* const qkv = static_cast<const std::byte*>(of.inputs(p.qkv, p.kept));
    const auto copy = [&](float(&numbers)[kSweepKeyDim], std::int64_t index) {
      ring.copy_row(i, numbers, qkv + index * element_bytes(p), kSweepKeyDim * element_bytes(p));
    };
    copy(to.queries, head.query(of.row));
    copy(to.keys, head.key(of.row));
    copy(to.values, head.value(of.row));
    const float* const gates = delta_gates(p, of) + head.gate(of.row);
    ring.copy_number(to.gates[0], gates);
    ring.copy_number(to.gates[1], gates + p.n_heads);
    ring.copy_number(to.a_log, p.a_log + head_index);
    ring.copy_number(to.dt_bias, p.dt_bias + head_index);
  }

  __device__ DeltaSweep(const Params& p, int head, const RawRow& first, const StateRun&)
      : p_(p), head_(p, head, first.a_log, first.dt_bias) {
    reader_.fetch(first.queries, first.keys, first.values, first.gates, p.qkv_dtype);
  }
  __device__ void fetch(const RunRow& of) { reader_.fetch(p_, head_, 0, of); }
  __device__ void prepare(Row& to) const { reader_.prepare(p_, head_, to); }

  /// `index`: of the outputs; -1: none. `between` is called when all threads have summed.
  template <class Between>
  __device__ __forceinline__ void compute(const Row& row, std::int64_t index, Sums& sums, Layout::State& state,
                                          Between&& between) const {
    Layout::sum(row.k, state, sums.of_k);
    Layout::sum(row.q, state, sums.of_q);
    between();
    const int column = Layout::column();
    float of_k[kStateQuad];
    float written[kStateQuad];
    join_warps(sums.of_k, column, of_k);
    delta_written(row, column, of_k, written);
    if (threadIdx.x < Layout::kLanes && index >= 0) {
      float of_q[kStateQuad];
      join_warps(sums.of_q, column, of_q);
      store_delta_out(p_, row, head_.out(index) + column, written, of_q);
    }
#pragma unroll
    for (int pass = 0; pass < Layout::kPasses; ++pass) {
      float k[Layout::kRows];
      load_f32(&row.k[Layout::row(pass, 0)], k);
#pragma unroll
      for (int i = 0; i < Layout::kRows; ++i) update_delta_state(k[i], row.decay, written, state[pass][i]);
    }
  }

 private:
  static __device__ int element_bytes(const Params& p) { return p.qkv_dtype == DType::f32 ? 4 : 2; }

  const Params& p_;
  DeltaHead head_;
  DeltaRowReader<kValueDim, kSweepKeyDim> reader_;
};

bool runs_delta_sweep(const Device& device, const DeltaRuleParams& params) {
  return runs_sweep<DeltaSweep>(device, params) && is_aligned(params.qkv, 16);
}

void launch_delta_sweep(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs) {
  launch_sweep<DeltaSweep>(device, params, n_runs, "gated_delta_rule");
}

}  // namespace baton::cuda
