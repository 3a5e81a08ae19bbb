/// Reads each row of logits once, in parts of kPartTokens tokens, one block for each part of a row. A block holds its
/// part in registers and writes a record of it and a near list (sampling_parts.h).
#include "kernels/cuda/sampling_gather.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sampling_params.cuh"

namespace baton::cuda {
namespace {

constexpr int kGatherWarps = kGatherThreads / kWarpSize;
constexpr int kLanesOfUnit = kUnitTokens / kIdsAtOnce;
constexpr int kUnitsAtOnce = kWarpSize / kLanesOfUnit;
constexpr LogitKey kNanKey = ~LogitKey{0};

struct GatherShared {
  LogitKey largest[kGatherWarps];    ///< key of each warp
  LogitKey near_keys[kGatherWarps];  ///< each warp's part of the threshold
  double sums_of_warps[kGatherWarps];
  unsigned long long best;
  std::uint32_t n_near;
};

/// The logits of a thread: kIdsAtOnce adjacent tokens of each of kGatherLoads units. Tokens behind the vocabulary have
/// -infinity.
struct ThreadLogits {
  float values[kGatherLoads][kIdsAtOnce];
  std::int32_t n_parts;
  std::int32_t part;

  __device__ std::int32_t first_id(int load) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int unit = (load * kUnitsAtOnce + lane / kLanesOfUnit) * kGatherWarps + warp;
    return first_of_unit(part, n_parts, unit) + lane % kLanesOfUnit * kIdsAtOnce;
  }
  __device__ void load_all(const Logits& row) {
#pragma unroll
    for (int load = 0; load < kGatherLoads; ++load) {
      const std::int32_t first = first_id(load);
#pragma unroll
      for (int i = 0; i < kIdsAtOnce; ++i) values[load][i] = -INFINITY;
      if (row.is_aligned && first < row.n_vocab) load_f32(row.values + first, values[load]);
      if (!row.is_aligned) {
#pragma unroll
        for (int i = 0; i < kIdsAtOnce; ++i)
          if (first + i < row.n_vocab) values[load][i] = row.values[first + i];
      }
    }
  }
  /// Calls body(load, i, value) in ascending order of ids.
  template <class Body>
  __device__ void each(Body body) const {
#pragma unroll
    for (int load = 0; load < kGatherLoads; ++load)
#pragma unroll
      for (int i = 0; i < kIdsAtOnce; ++i) body(load, i, values[load][i]);
  }
  /// The largest logit; a NaN if there is one.
  __device__ float largest() const {
    float largest = -INFINITY;
    each([&](int, int, float value) { largest = max_or_nan(largest, value); });
    return largest;
  }
  /// The place of the first token with the logit `max`; 0 without any.
  __device__ Place place_of_first(float max) const {
    Place place = 0;
    each([&](int load, int i, float value) {
      if (value == max && place == 0) place = place_of(value, first_id(load) + i);
    });
    return place;
  }
  /// Sum of exp(logit - max); `max` is finite.
  __device__ float sum_of_exp(float max) const {
    float sums[kIdsAtOnce] = {};
    each([&](int, int i, float value) { sums[i] += exp2_of((value - max) * kLog2OfE); });
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

 private:
  static constexpr float kLog2OfE = 1.44269504f;
  /// 2^x; 0 instead of a denormal number.
  __device__ static float exp2_of(float x) {
    float power = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
  }
  __device__ static float max_or_nan(float a, float b) {
    float larger = 0;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
  }
};

/// The warp's `rank`-th largest key, at least 1.
__device__ LogitKey largest_of_warp(LogitKey key, int rank) {
  LogitKey largest = __reduce_max_sync(0xffffffffu, key);
  for (int i = 1; i < rank; ++i) {
    const std::uint32_t holders = __ballot_sync(0xffffffffu, key == largest);
    if (static_cast<int>(threadIdx.x) % kWarpSize == __ffs(static_cast<int>(holders)) - 1) key = 0;
    largest = __reduce_max_sync(0xffffffffu, key);
  }
  return largest;
}

/// The part's threshold, from each warp's: the smallest but kSmallerWarps. Every thread gets it.
__device__ LogitKey threshold_of(const LogitKey (&of_warps)[kGatherWarps]) {
  const LogitKey mine = of_warps[static_cast<int>(threadIdx.x) % kGatherWarps];
  int rank = 0;
#pragma unroll
  for (int i = 0; i < kGatherWarps; ++i) rank += of_warps[i] < mine ? 1 : 0;
  const LogitKey threshold = __reduce_max_sync(0xffffffffu, rank <= kSmallerWarps ? mine : 0);
  return threshold > kLeastFiniteKey ? threshold : kLeastFiniteKey;
}

/// Block (part, sample of the launch).
__global__ void __launch_bounds__(kGatherThreads, 4) gather_kernel(const SampleParams params) {
  __shared__ GatherShared shared;
  let_next_kernel_start();
  const Section& samples = step_header(params.step).section(SectionKind::samples);
  const auto in_launch = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t index = params.first_sample + in_launch;
  if (index >= samples.count) return;
  const SamplingMetadata& sampling = section<SamplingMetadata>(params.step, samples)[index];
  const bool lists = needs_near(sampling);
  const bool sums = sampling.n_top_logprobs >= 0;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (threadIdx.x == 0) shared.best = shared.n_near = 0;
  wait_for_kernel_before();
  ThreadLogits logits;
  logits.n_parts = params.n_parts;
  logits.part = static_cast<std::int32_t>(blockIdx.x);
  logits.load_all(params.row(index));
  const float mine = logits.largest();
  const LogitKey key = isnan(mine) ? kNanKey : monotone_bits(mine);
  const LogitKey largest = __reduce_max_sync(0xffffffffu, key);
  if (static_cast<int>(threadIdx.x) % kWarpSize == 0) shared.largest[warp] = largest;
  if (lists) shared.near_keys[warp] = largest_of_warp(key, near_rank(params.n_parts));
  __syncthreads();
  LogitKey best = 0;
#pragma unroll
  for (int i = 0; i < kGatherWarps; ++i) best = shared.largest[i] > best ? shared.largest[i] : best;
  const std::int64_t at = static_cast<std::int64_t>(in_launch) * params.n_parts + logits.part;
  const float max = from_monotone_bits(best);
  const bool is_finite = fabsf(max) < INFINITY;
  const LogitKey threshold = lists && is_finite ? threshold_of(shared.near_keys) : kNoThreshold;
  if (key == best && !isnan(max)) atomicMax(&shared.best, static_cast<unsigned long long>(logits.place_of_first(max)));
  if (key >= threshold) {
    const float from = from_monotone_bits(threshold);
    logits.each([&](int load, int i, float value) {
      if (!(value >= from)) return;
      const std::uint32_t slot = atomicAdd(&shared.n_near, 1u);
      if (slot < kNearRoom) params.near_lists[at * kNearRoom + slot] = place_of(value, logits.first_id(load) + i);
    });
  }
  double sum = 0;
  if (sums && is_finite)
    sum =
        block_join(static_cast<double>(logits.sum_of_exp(max)), shared.sums_of_warps, [](double a, double b) { return a + b; });
  __syncthreads();
  if (threadIdx.x != 0) return;
  PartRecord record;
  record.best = best == kNanKey ? kNotANumber : shared.best;
  record.sum = sum;
  record.n_near = shared.n_near;
  record.threshold = max == -INFINITY ? kLeastFiniteKey : shared.n_near <= kNearRoom ? threshold : kNoThreshold;
  params.parts[at] = record;
}

}  // namespace

void gather_parts(const Device& device, const SampleParams& params, unsigned n_samples) {
  launch_overlapped(device, gather_kernel, dim3(static_cast<unsigned>(params.n_parts), n_samples), kGatherThreads, 0,
                    "sample: parts of rows", params);
}

}  // namespace baton::cuda
