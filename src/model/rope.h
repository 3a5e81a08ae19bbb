/// Rotation frequencies of RoPE.
#pragma once

#include <vector>

#include "model/spec.h"

namespace baton {

/// The angle per position of each pair of a head's elements, [rotary_dim / 2]: theta^(-2i / rotary_dim), divided
/// according to the scaling. In f32, as in Transformers, whose angles are position * frequency in f32 too. Sources:
/// arXiv:2104.09864 (RoPE), 2306.15595 (linear), the Llama 3.1 release (llama3: frequencies with wavelengths above
/// original/low are divided by the factor, those with wavelengths below original/high are kept, those between are
/// interpolated).
std::vector<float> rope_frequencies(const RopeSpec& spec);

}  // namespace baton
