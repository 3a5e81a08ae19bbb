/// Choosing a token from a whole row on a CUDA device. Several passes over the row; nothing is sorted.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/sampling/params.cuh"
#include "kernels/formulas.h"

namespace baton::cuda {

/// Above the largest possible Gumbel noise, with room for rounding.
inline constexpr float kMostNoise = 17;

/// The mass that a nucleus must reach, of a total that is not 0.
__device__ inline std::uint64_t wanted_mass(float top_p, std::uint64_t total) {
  const double wanted = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  const std::uint64_t at_least_one = wanted >= 1 ? static_cast<std::uint64_t>(wanted) : 1;
  return at_least_one < total ? at_least_one : total;
}

/// The least place that min_p, top_k and top_p leave.
__device__ inline Place least_candidate(const Logits& logits, Shared& shared, const SamplingMetadata& sampling, float max,
                                        float scale) {
  Place lowest = 0;
  std::uint64_t n_left = static_cast<std::uint64_t>(logits.n());
  if (sampling.min_p > 0) {
    const float least_scaled = logf(sampling.min_p);
    Place mine = ~Place{0};
    n_left = 0;
    logits.each([&](std::int32_t id, float logit) {
      if (logit == -INFINITY || __fmul_rn(logit - max, scale) < least_scaled) return;
      const Place place = place_of(logit, id);
      mine = place < mine ? place : mine;
      ++n_left;
    });
    lowest = ~block_max(shared, ~mine);
    n_left = block_sum(shared, n_left);
  }
  if (sampling.top_k > 0 && static_cast<std::uint64_t>(sampling.top_k) < n_left)
    lowest = least_place(logits, shared.search, lowest, static_cast<std::uint64_t>(sampling.top_k), ByCount{});
  if (sampling.top_p >= 1) return lowest;
  const ByMass mass{max, scale};
  std::uint64_t total = shared.total;
  if (total == 0) {
    logits.each([&](std::int32_t id, float logit) {
      if (place_of(logit, id) >= lowest) total += mass(logit);
    });
    total = block_sum(shared, total);
  }
  return least_place(logits, shared.search, lowest, wanted_mass(sampling.top_p, total), mass);
}

/// The place of the largest score, log p + noise, of the candidates from `lowest` on; the smaller id on a tie. Some
/// candidate has a score of at least `least_score` + kMostNoise, so noise is not computed for scores below least_score.
__device__ inline Place best_score(const Logits& logits, Shared& shared, const SamplingMetadata& sampling,
                                   std::int32_t n_generated, float max, float scale, Place lowest, float least_score) {
  Place best = 0;
  logits.each_four([&](std::int32_t first, const float(&four)[kIdsAtOnce]) {
    float scores[kIdsAtOnce];
    bool may_win = false;
#pragma unroll
    for (int i = 0; i < kIdsAtOnce; ++i) {
      scores[i] = __fmul_rn(four[i] - max, scale);
      may_win |= scores[i] >= least_score;
    }
    if (!may_win) return;
    const std::array<std::uint32_t, 4> bits = bits_of_four_tokens(sampling.seed, n_generated, first / kIdsAtOnce);
#pragma unroll
    for (int i = 0; i < kIdsAtOnce; ++i) {
      if (four[i] == -INFINITY || place_of(four[i], first + i) < lowest) continue;
      // Rounded after each operation, as on a CPU: a fused multiply-add would decide near ties differently.
      const Place place = place_of(__fadd_rn(scores[i], gumbel_of_bits(bits[i])), first + i);
      best = place > best ? place : best;
    }
  });
  return block_max(shared, best);
}

/// The remaining token with the largest log p + noise; the smaller id on a tie. `most_likely_id` has the logit `max`.
__device__ inline std::int32_t draw(const Logits& logits, Shared& shared, const SamplingMetadata& sampling,
                                    std::int32_t n_generated, std::int32_t most_likely_id, float max) {
  const float scale = 1.0f / sampling.temperature;
  const Place lowest = least_candidate(logits, shared, sampling, max, scale);
  // A token this far below the most likely one cannot have the largest score.
  const float least_score = gumbel_noise(sampling.seed, n_generated, most_likely_id) - kMostNoise;
  return id_of(best_score(logits, shared, sampling, n_generated, max, scale, lowest, least_score));
}

/// Log-probabilities of the `n_top` <= kMaxTopLogprobs most likely tokens, most likely first.
__device__ inline void fill_top(const Logits& logits, Shared& shared, std::int32_t n_top, double log_sum,
                                SampleResult& result) {
  const Place lowest =
      n_top < logits.n() ? least_place(logits, shared.search, 0, static_cast<std::uint64_t>(n_top), ByCount{}) : Place{0};
  if (threadIdx.x == 0) shared.n_top = 0;
  __syncthreads();
  logits.each([&](std::int32_t id, float logit) {
    const Place place = place_of(logit, id);
    if (place >= lowest) shared.top[atomicAdd(&shared.n_top, 1u)] = place;
  });
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < n_top) {
    const Place mine = shared.top[threadIdx.x];
    int rank = 0;
    for (int i = 0; i < n_top; ++i) rank += shared.top[i] > mine ? 1 : 0;
    result.top_ids[rank] = id_of(mine);
    result.top_logprobs[rank] = static_cast<float>(value_of(mine) - log_sum);
  }
  if (threadIdx.x == 0) result.n_top = n_top;
  __syncthreads();
}

/// The place of the most likely candidate, 0 without any, kNotANumber with a NaN among them.
__device__ inline Place most_likely(const Logits& logits, Shared& shared) {
  Place best = 0;
  logits.each([&](std::int32_t id, float logit) {
    const Place place = isnan(logit) ? kNotANumber : place_of(logit, id);
    best = place > best ? place : best;
  });
  return block_max(shared, best);
}

/// The log-probability and rank of a known token.
__device__ inline void score(const Logits& logits, Shared& shared, const SamplingMetadata& sampling, double log_sum,
                             SampleResult& result) {
  const float logit = logits.at(sampling.scored);
  std::uint64_t n_larger = 0;
  logits.each([&](std::int32_t, float other) { n_larger += other > logit ? 1 : 0; });
  n_larger = block_sum(shared, n_larger);
  if (threadIdx.x != 0) return;
  result.token = sampling.scored;
  result.logprob = static_cast<float>(logit - log_sum);
  result.rank = 1 + static_cast<std::int32_t>(n_larger);
}

}  // namespace baton::cuda
