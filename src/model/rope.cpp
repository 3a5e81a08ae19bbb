/// Computes the frequencies of rope.h.
#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace baton {
namespace {

float scaled_as_llama3(float frequency, const RopeScaling& scaling) {
  const double original = scaling.original_max_position;
  const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  const float divided = frequency / static_cast<float>(scaling.factor);
  if (wavelength > original / scaling.low_freq_factor) return divided;
  const double smooth =
      (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>((1 - smooth) * static_cast<double>(divided) + smooth * static_cast<double>(frequency));
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& spec) {
  std::vector<float> frequencies(static_cast<std::size_t>(spec.rotary_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.rotary_dim);
    const float frequency = 1.0f / static_cast<float>(std::pow(spec.theta, static_cast<double>(exponent)));
    switch (spec.scaling.kind) {
      case RopeScaling::Kind::none: frequencies[i] = frequency; break;
      case RopeScaling::Kind::linear: frequencies[i] = frequency / static_cast<float>(spec.scaling.factor); break;
      case RopeScaling::Kind::llama3: frequencies[i] = scaled_as_llama3(frequency, spec.scaling); break;
    }
  }
  return frequencies;
}

}  // namespace baton
