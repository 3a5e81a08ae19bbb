/// Reads each row of logits once, in parts of kPartTokens tokens, one block for each part of a row. A block holds its
/// part in registers and writes a record of it and a near list (sampling/parts.h).
#include <array>
#include <cstdint>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/sampling/params.cuh"
#include "kernels/cuda/sampling/records.cuh"
#include "kernels/formulas.h"

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
  std::uint32_t n_scored;  ///< over kWarpSize: too many
  float scores_of_warps[kGatherWarps];
  float scores[kWarpSize];
  Place scored[kWarpSize];  ///< places by logit
};

/// The logits of a thread: kIdsAtOnce adjacent tokens of each of kGatherLoads units. Tokens after the vocabulary have
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
  /// Replaces each logit by a number that the token's score exceeds by rounding at most, and that is little larger for
  /// large noise. Returns the largest.
  __device__ float bound_scores(const Draw& draw) {
    float largest = -INFINITY;
#pragma unroll
    for (int load = 0; load < kGatherLoads; ++load) {
      float(&four)[kIdsAtOnce] = values[load];
      float likeliest = -INFINITY;
#pragma unroll
      for (int i = 0; i < kIdsAtOnce; ++i) {
        four[i] = draw.scaled(four[i]);
        likeliest = fmaxf(likeliest, four[i]);
      }
      if (likeliest < -kNoiseRange) continue;  // these scores are below that of the part's most likely token
      const std::array<std::uint32_t, 4> bits = bits_of_four_tokens(draw.seed, draw.n_generated, first_id(load) / kIdsAtOnce);
#pragma unroll
      for (int i = 0; i < kIdsAtOnce; ++i) {
        four[i] += noise_bound(bits[i]);
        largest = fmaxf(largest, four[i]);
      }
    }
    return largest;
  }
  /// The tokens whose value is at least `least`, one bit each: bit load * kIdsAtOnce + i.
  __device__ std::uint32_t bits_from(float least) const {
    std::uint32_t bits = 0;
    each([&](int load, int i, float value) { bits |= value >= least ? 1u << (load * kIdsAtOnce + i) : 0; });
    return bits;
  }
  __device__ std::int32_t id_of_bit(int bit) const { return first_id(bit / kIdsAtOnce) + bit % kIdsAtOnce; }

 private:
  /// Above the difference of any two values of gumbel_of_bits, which are in -2.8 to 16.7.
  static constexpr float kNoiseRange = 19.6f;
  /// At least gumbel_of_bits(bits), except for rounding: -log(-log(u)) <= -log(1 - u), as -log(u) >= 1 - u.
  __device__ static float noise_bound(std::uint32_t bits) {
    float log2 = 0;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(static_cast<float>(~bits >> 9) + 0.5f));
    return (23 - log2) * kLogOf2;
  }
  static constexpr float kLogOf2 = 0.693147181f;
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

/// Finds and writes the tokens that may have the part's largest score. The logits become bounds. All threads of the block
/// call it.
__device__ void draw_in_part(ThreadLogits& logits, const Logits& row, const Draw& draw, GatherShared& shared, PartDraw& drawn) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const float mine = logits.bound_scores(draw);
  // Some token has at least the score of the warps' tokens with the largest bounds.
  const LogitKey key = monotone_bits(mine);
  const std::uint32_t holders = __ballot_sync(0xffffffffu, key == __reduce_max_sync(0xffffffffu, key));
  if (lane == __ffs(static_cast<int>(holders)) - 1) {
    const std::uint32_t bits = logits.bits_from(mine);
    const std::int32_t id = logits.id_of_bit(bits == 0 ? 0 : __ffs(static_cast<int>(bits)) - 1);
    shared.scores_of_warps[warp] = mine > -INFINITY ? draw.score(row.values[id], id) : -INFINITY;
  }
  __syncthreads();
  float least = shared.scores_of_warps[0];
#pragma unroll
  for (int i = 1; i < kGatherWarps; ++i) least = fmaxf(least, shared.scores_of_warps[i]);
  least -= kScoreRounding;
  for (std::uint32_t bits = mine >= least ? logits.bits_from(least) : 0; bits != 0; bits &= bits - 1) {
    const std::int32_t id = logits.id_of_bit(__ffs(static_cast<int>(bits)) - 1);
    const float logit = row.values[id];
    const std::uint32_t slot = atomicAdd(&shared.n_scored, 1u);
    if (slot >= kWarpSize) break;
    shared.scores[slot] = draw.score(logit, id);
    shared.scored[slot] = place_of(logit, id);
  }
  __syncthreads();
  if (warp != 0) return;
  const std::uint32_t n_scored = shared.n_scored;
  const float score = lane < static_cast<int>(n_scored) ? shared.scores[lane] : -INFINITY;
  float best = score;
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, distance));
  const bool may_win = score > -INFINITY && score >= best - kScoreRounding;
  const std::uint32_t winners = __ballot_sync(0xffffffffu, may_win ? 1 : 0);
  const int at = __popc(winners & ((1u << lane) - 1));
  if (may_win && at < kDrawnRoom) drawn.tokens[at] = shared.scored[lane];
  if (lane == 0) drawn.n = n_scored == 0 || n_scored > kWarpSize ? kDrawnRoom + 1 : static_cast<std::uint32_t>(__popc(winners));
}

/// Processes one part of a row. All threads of the block call it.
template <bool kDraws>
__device__ __forceinline__ void gather_part(const SampleParams& params, const SamplingMetadata& sampling, std::int32_t index,
                                            GatherShared& shared) {
  const bool lists = !kDraws && needs_near(sampling);
  const bool sums = !kDraws && sampling.n_top_logprobs >= 0;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  wait_for_kernel_before();
  const std::int32_t n_generated = kDraws ? sampling.n_generated_before + params.slots[sampling.slot].n_generated : 0;
  ThreadLogits logits;
  logits.n_parts = params.n_parts;
  logits.part = static_cast<std::int32_t>(blockIdx.x);
  const Logits row = params.row(index);
  logits.load_all(row);
  const float mine = logits.largest();
  const LogitKey key = isnan(mine) ? kNanKey : monotone_bits(mine);
  const LogitKey largest = __reduce_max_sync(0xffffffffu, key);
  if (static_cast<int>(threadIdx.x) % kWarpSize == 0) shared.largest[warp] = largest;
  if (lists) shared.near_keys[warp] = largest_of_warp(key, near_rank(params.n_parts));
  __syncthreads();
  LogitKey best = 0;
#pragma unroll
  for (int i = 0; i < kGatherWarps; ++i) best = shared.largest[i] > best ? shared.largest[i] : best;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.y) * params.n_parts + logits.part;
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
  if (kDraws && is_finite)
    draw_in_part(logits, row, {sampling.seed, n_generated, max, 1.0f / sampling.temperature}, shared, params.draws[at]);
  else
    __syncthreads();
  if (threadIdx.x != 0) return;
  PartRecord record;
  record.best = best == kNanKey ? kNotANumber : shared.best;
  record.sum = sum;
  record.n_near = shared.n_near;
  record.threshold = max == -INFINITY ? kLeastFiniteKey : shared.n_near <= kNearRoom ? threshold : kNoThreshold;
  params.parts[at] = record;
  if (kDraws && !is_finite) params.draws[at].n = max == -INFINITY ? 0 : kDrawnRoom + 1;
}
/// Apart, because the code without a draw took two thirds more instructions beside it.
__device__ __noinline__ void gather_and_draw(const SampleParams& params, const SamplingMetadata& sampling, std::int32_t index,
                                             GatherShared& shared) {
  gather_part<true>(params, sampling, index, shared);
}

/// Block (part, sample of the launch).
__global__ void __launch_bounds__(kGatherThreads, 4) gather_kernel(const __grid_constant__ SampleParams params) {
  __shared__ GatherShared shared;
  let_next_kernel_start();
  const Section& samples = step_header(params.step).section(SectionKind::samples);
  const std::int32_t index = params.first_sample + static_cast<std::int32_t>(blockIdx.y);
  if (index >= samples.count) return;
  const SamplingMetadata& sampling = section<SamplingMetadata>(params.step, samples)[index];
  if (threadIdx.x == 0) shared.best = shared.n_near = shared.n_scored = 0;
  if (!draws_from_all(sampling)) {
    gather_part<false>(params, sampling, index, shared);
  } else {
    if (sampling.slot < 0 || sampling.slot >= params.n_slots) __trap();
    gather_and_draw(params, sampling, index, shared);
  }
}

}  // namespace

void gather_parts(const Device& device, const SampleParams& params, unsigned n_samples) {
  launch_overlapped(device, gather_kernel, dim3(static_cast<unsigned>(params.n_parts), n_samples), kGatherThreads, 0,
                    "sample: parts of rows", params);
}

}  // namespace baton::cuda
