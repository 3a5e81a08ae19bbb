/// What the parts' records say of a whole row, without its list: the most likely token, and the token that is drawn from
/// all of an unchanged row.
#pragma once

#include <cstdint>

#include "kernels/cuda/sampling_params.cuh"
#include "kernels/formulas.h"

namespace baton::cuda {

__device__ inline Place largest_of_warp(Place place) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const Place other = __shfl_xor_sync(0xffffffffu, place, distance);
    place = other > place ? other : place;
  }
  return place;
}

/// The place of the row's first token with the largest logit; kNotANumber with a NaN. By a warp.
__device__ inline Place best_of_records(const PartRecord* records, std::int32_t n) {
  Place best = 0;
  for (auto part = static_cast<std::int32_t>(threadIdx.x % kWarpSize); part < n; part += kWarpSize)
    best = records[part].best > best ? records[part].best : best;
  return largest_of_warp(best);
}

/// The token with the largest score, log p + noise, of those drawn from the parts; -1: a part has too many. `max` is the
/// row's largest logit. By a warp.
__device__ inline std::int32_t best_of_draws(const PartDraw* draws, std::int32_t n, float max, const SamplingMetadata& sampling,
                                             std::int32_t n_generated) {
  constexpr Place kUnknown = ~Place{0};
  const float scale = 1.0f / sampling.temperature;
  Place best = 0;
  for (auto part = static_cast<std::int32_t>(threadIdx.x % kWarpSize); part < n; part += kWarpSize) {
    const PartDraw& draw = draws[part];
    if (draw.n > kDrawnRoom) best = kUnknown;
    for (std::uint32_t i = 0; i < draw.n && i < kDrawnRoom; ++i) {
      const std::int32_t id = id_of(draw.tokens[i]);
      // Rounded after each operation, as on a CPU: a fused multiply-add would decide near ties differently.
      const float scaled = __fmul_rn(value_of(draw.tokens[i]) - max, scale);
      const Place score = place_of(__fadd_rn(scaled, gumbel_noise(sampling.seed, n_generated, id)), id);
      best = score > best ? score : best;
    }
  }
  best = largest_of_warp(best);
  return best == kUnknown ? -1 : id_of(best);
}

}  // namespace baton::cuda
