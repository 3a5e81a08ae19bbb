/// Rotation frequencies of RoPE.
#pragma once

#include <vector>

#include "model/spec.h"

namespace baton {

/// The angle a position adds to each pair of a head's elements, [rotary_dim / 2]: theta^(-2i / rotary_dim), divided
/// as the scaling says. In f32 like Transformers, whose angles are position * frequency in f32 too. Sources:
/// arXiv:2104.09864 (RoPE), 2306.15595 (linear), the Llama 3.1 release (llama3: wavelengths above original/low are
/// divided by the factor, those below original/high are kept, and between the two it is interpolated).
std::vector<float> rope_frequencies(const RopeSpec& spec);

}  // namespace baton
