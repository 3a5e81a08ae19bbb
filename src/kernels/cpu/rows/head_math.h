/// Norms, rotations and time steps of heads in f32.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/tensor.h"
#include "kernels/cpu/rows/row_math.h"

namespace baton::cpu {

/// ln(1 + exp(x)), which is x in f32 from 20 on.
inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

/// x = x / sqrt(mean(x^2) + eps) * weight, over each run of `run` numbers of the n numbers at `x`. `weight`, f32, has the
/// weights of one run.
inline void normalize(float* x, std::int64_t n, std::int64_t run, const ConstTensorView& weight, float eps) {
  for (float* from = x; from < x + n; from += run) {
    const float mean = sum_of_squares(from, run) / static_cast<float>(run);
    scale_by_weight(from, 1.0f / std::sqrt(mean + eps), weight.elements<float>().data(), run, from);
  }
}

/// Rotates the 2 * half numbers at `x` in place by the angles of one position. Pairs are i and i + half, or neighbours.
inline void rotate(float* x, const float* cos, const float* sin, int half, bool pairs_are_neighbours = false) {
  for (int i = 0; i < half; ++i) {
    float& first = x[pairs_are_neighbours ? 2 * i : i];
    float& second = x[pairs_are_neighbours ? 2 * i + 1 : i + half];
    const float a = first;
    const float b = second;
    first = a * cos[i] - b * sin[i];
    second = b * cos[i] + a * sin[i];
  }
}

}  // namespace baton::cpu
