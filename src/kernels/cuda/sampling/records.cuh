/// What the parts' records say of a whole row, without its list: the most likely token, and the token that is drawn from
/// all of an unchanged row.
#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/params.cuh"
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

/// What decides the score of a token, log p + noise. Rounded after each operation, as on a CPU: a fused multiply-add
/// would decide near ties differently.
struct Draw {
  std::uint64_t seed;
  std::int32_t n_generated;
  float max;    ///< the largest logit of the part or row
  float scale;  ///< 1 / temperature

  __device__ float scaled(float logit) const { return __fmul_rn(logit - max, scale); }
  __device__ float score(float logit, std::int32_t id) const {
    return __fadd_rn(scaled(logit), gumbel_noise(seed, n_generated, id));
  }
};

/// The token with the largest score, log p + noise, of those drawn from the `n` parts; -1: a part has too many. By a
/// warp.
__device__ inline std::int32_t best_of_draws(const PartDraw* parts, std::int32_t n, const Draw& draw) {
  constexpr Place kUnknown = ~Place{0};
  Place best = 0;
  for (auto part = static_cast<std::int32_t>(threadIdx.x % kWarpSize); part < n; part += kWarpSize) {
    const PartDraw& drawn = parts[part];
    if (drawn.n > kDrawnRoom) best = kUnknown;
    for (std::uint32_t i = 0; i < drawn.n && i < kDrawnRoom; ++i) {
      const std::int32_t id = id_of(drawn.tokens[i]);
      const Place score = place_of(draw.score(value_of(drawn.tokens[i]), id), id);
      best = score > best ? score : best;
    }
  }
  best = largest_of_warp(best);
  return best == kUnknown ? -1 : id_of(best);
}

}  // namespace baton::cuda
