/// Rotation frequencies of RoPE for a model's config.
#pragma once

#include <vector>

#include "model/config.h"

namespace baton {

/// The angle a position adds to each pair of a head's elements, [head_dim / 2]: theta^(-2i / head_dim), divided as
/// `rope_scaling` says. In f32 like Transformers, whose angles are position * frequency in f32 too. Sources: arXiv:2104.09864
/// (RoPE), 2306.15595 (linear), the Llama 3.1 release (llama3: wavelengths above original/low are divided by the factor, those
/// below original/high are kept, and between the two it is interpolated).
std::vector<float> rope_frequencies(const ModelConfig& config);

}  // namespace baton
