/// Rotation frequencies of RoPE.
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace baton {

/// The angle per position of each pair of a head's elements, [rotary_dim / 2]: theta^(-2i / rotary_dim), changed
/// according to the scaling. In f32, as in Transformers, whose angles are position * frequency in f32 too.
///
///     linear    divided by the factor
///     dynamic   theta grows with the longest sequence n: by (factor * n / original - (factor - 1))^(dim / (dim - 2))
///               if n > original
///     llama3    frequencies with wavelengths above original / low are divided by the factor, those with wavelengths
///               below original / high are kept, those between are interpolated
///     yarn      pairs that turn more than beta_fast times within the original length are kept, pairs that turn less
///               than beta_slow times are divided by the factor, those between are interpolated
///     longrope  each pair is divided by a factor of its own: the long factor if n > original, otherwise the short one
///
/// `n_positions` is n, the length of the longest sequence that will be computed with these frequencies. Transformers
/// uses the length of the current sequence. Baton caches rotated keys, so it chooses the frequencies once.
/// Sources: arXiv:2104.09864 (RoPE), 2306.15595 (linear), 2309.00071 (dynamic, yarn), 2402.13753 (longrope), the Llama
/// 3.1 release (llama3).
std::vector<float> rope_frequencies(const RopeSpec& spec, std::int64_t n_positions);

/// The longest context of a model with this rotation and `max_position_embeddings` = `max_position`. With dynamic and
/// yarn it is the original length times the factor, if that is more, and at most fields::kMaxPositions.
std::int32_t scaled_max_position(const RopeSpec& spec, std::int32_t max_position);

}  // namespace baton
