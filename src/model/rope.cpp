/// Computes the frequencies of rope.h.
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "model/config_fields.h"

namespace baton {
namespace {

using RopeKind = RopeScaling::Kind;

/// theta^(2i / rotary_dim) of each pair.
std::vector<float> powers_of(double theta, std::int32_t rotary_dim) {
  std::vector<float> powers(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < powers.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    powers[i] = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  return powers;
}

float scaled_as_llama3(float frequency, const RopeScaling& scaling) {
  const double original = scaling.original_max_position;
  const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
  if (wavelength <= original / scaling.high_freq_factor) return frequency;
  const float divided = frequency / static_cast<float>(scaling.factor);
  if (wavelength > original / scaling.low_freq_factor) return divided;
  const double smooth =
      (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>((1 - smooth) * static_cast<double>(divided) + smooth * static_cast<double>(frequency));
}

/// Theta for a longest sequence of `n_positions`.
double dynamic_theta(const RopeSpec& spec, std::int64_t n_positions) {
  const double original = spec.scaling.original_max_position;
  const double length = std::max(static_cast<double>(n_positions), original);
  const double growth = spec.scaling.factor * length / original - (spec.scaling.factor - 1);
  const double dim = spec.rotary_dim;
  return spec.theta * std::pow(growth, dim / (dim - 2));
}

/// The weight of the divided frequency for each pair: 0 for pairs that turn more than beta_fast times, 1 for pairs
/// that turn less than beta_slow times.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeSpec& spec) {
    const RopeScaling& scaling = spec.scaling;
    const auto pair_that_turns = [&](double times) {
      const double length = scaling.original_max_position / (times * 2 * std::numbers::pi);
      return spec.rotary_dim * std::log(length) / (2 * std::log(spec.theta));
    };
    double low = pair_that_turns(scaling.beta_fast);
    double high = pair_that_turns(scaling.beta_slow);
    if (scaling.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low_ = static_cast<float>(std::max(low, 0.0));
    const double end = std::min(high, static_cast<double>(spec.rotary_dim - 1));
    width_ = static_cast<float>(end == std::max(low, 0.0) ? 0.001 : end - std::max(low, 0.0));
  }

  float of_pair(std::size_t i) const { return std::clamp((static_cast<float>(i) - low_) / width_, 0.0f, 1.0f); }

 private:
  float low_ = 0;
  float width_ = 0;
};

void scale_as_yarn(const RopeSpec& spec, std::vector<float>& frequencies) {
  const YarnRamp ramp(spec);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float divided = frequencies[i] / static_cast<float>(spec.scaling.factor);
    const float share = ramp.of_pair(i);
    frequencies[i] = divided * share + frequencies[i] * (1 - share);
  }
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& spec, std::int64_t n_positions) {
  const RopeScaling& scaling = spec.scaling;
  const bool is_longer = n_positions > scaling.original_max_position;
  const double theta = scaling.kind == RopeKind::dynamic ? dynamic_theta(spec, n_positions) : spec.theta;
  std::vector<float> frequencies = powers_of(theta, spec.rotary_dim);
  if (!spec.turns) return std::vector<float>(frequencies.size(), 0.0f);
  if (scaling.kind == RopeKind::longrope) {
    const std::vector<double>& factors = is_longer ? scaling.long_factors : scaling.short_factors;
    check(factors.size() == frequencies.size(), "rope_frequencies: one factor a pair");
    for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] *= static_cast<float>(factors[i]);
  }
  for (float& frequency : frequencies) frequency = 1.0f / frequency;
  if (scaling.kind == RopeKind::linear)
    for (float& frequency : frequencies) frequency /= static_cast<float>(scaling.factor);
  if (scaling.kind == RopeKind::llama3)
    for (float& frequency : frequencies) frequency = scaled_as_llama3(frequency, scaling);
  if (scaling.kind == RopeKind::yarn) scale_as_yarn(spec, frequencies);
  return frequencies;
}

std::int32_t scaled_max_position(const RopeSpec& spec, std::int32_t max_position) {
  const RopeScaling& scaling = spec.scaling;
  if (scaling.kind != RopeKind::dynamic && scaling.kind != RopeKind::yarn) return max_position;
  const double scaled = std::min(scaling.original_max_position * scaling.factor, static_cast<double>(fields::kMaxPositions));
  return std::max(max_position, static_cast<std::int32_t>(scaled));
}

}  // namespace baton
