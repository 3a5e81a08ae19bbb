/// Gaps between requests, drawn from a gamma distribution by a generator of our own: the standard library's
/// distributions differ between implementations.
#include "bench/serve/request_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "core/split_mix.h"

namespace baton {
namespace {

class GapGenerator {
 public:
  explicit GapGenerator(std::uint64_t seed) : seed_(mix_bits(seed)) {}

  /// A gamma variate of mean 1: shape `burstiness`, scale 1 / burstiness.
  double gap(double burstiness) {
    if (std::isinf(burstiness)) return 1;
    if (burstiness == 1) return -std::log(uniform());
    return gamma(burstiness) / burstiness;
  }

 private:
  /// In (0, 1).
  double uniform() { return (static_cast<double>(split_mix(seed_, index_++) >> 11) + 0.5) * 0x1p-53; }

  /// Box and Muller's method.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  /// Source: Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26(3), 2000.
  double gamma(double shape) {
    if (shape < 1) {
      const double larger = gamma(shape + 1);
      return larger * std::pow(uniform(), 1 / shape);
    }
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

  std::uint64_t seed_;
  std::uint64_t index_ = 0;
};

/// The rate at request `i` of `n` of a ramp.
double ramp_rate(const ScheduleOptions& options, std::size_t i, std::size_t n) {
  const double progress = static_cast<double>(i) / static_cast<double>(std::max<std::size_t>(n, 2) - 1);
  if (options.ramp_up == "linear") return options.ramp_up_start + (options.ramp_up_end - options.ramp_up_start) * progress;
  return options.ramp_up_start * std::pow(options.ramp_up_end / options.ramp_up_start, progress);
}

}  // namespace

Result<void> check_schedule(const ScheduleOptions& options) {
  const auto refuse = [](std::string message) { return fail(ErrorCode::invalid_request, std::move(message)); };
  if (!(options.burstiness > 0)) return refuse(fmt::format("--burstiness must be positive, not {:g}", options.burstiness));
  if (!(options.rate > 0)) return refuse(fmt::format("--request-rate must be positive, not {:g}", options.rate));
  if (options.ramp_up.empty()) return {};
  if (options.ramp_up != "linear" && options.ramp_up != "exponential")
    return refuse(fmt::format("--ramp-up-strategy must be linear or exponential, not '{}'", options.ramp_up));
  if (!std::isinf(options.rate)) return refuse("--request-rate does not go with --ramp-up-strategy, which sets the rate");
  if (!(options.ramp_up_start > 0) || !(options.ramp_up_end >= options.ramp_up_start) || std::isinf(options.ramp_up_end))
    return refuse(fmt::format("--ramp-up-strategy needs 0 < --ramp-up-start-rps <= --ramp-up-end-rps, not {:g} and {:g}",
                              options.ramp_up_start, options.ramp_up_end));
  return {};
}

std::vector<double> make_schedule(const ScheduleOptions& options, std::uint64_t seed, std::size_t n) {
  const bool is_ramp = !options.ramp_up.empty();
  std::vector<double> times(n, 0);
  if (n == 0 || (std::isinf(options.rate) && !is_ramp)) return times;
  GapGenerator generator(seed);
  double now = 0;
  for (std::size_t i = 0; i < n; ++i) {
    now += generator.gap(options.burstiness) / (is_ramp ? ramp_rate(options, i, n) : options.rate);
    times[i] = now;
  }
  if (!is_ramp)
    for (double& time : times) time *= static_cast<double>(n) / options.rate / now;
  return times;
}

}  // namespace baton
