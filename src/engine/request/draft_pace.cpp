/// Compares the tokens a second of a step without drafts and with each number of them.
#include "engine/request/draft_pace.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace baton {
namespace {

constexpr double kMemoryOfPasses = 0.95;
/// While costs are unknown, every step of this number has no drafts.
constexpr std::int32_t kStepsToLearn = 4;
/// Drafts that did not pay are tried again after so many steps.
constexpr std::int32_t kStepsToRetry = 64;
/// Drafts must give so much more than none, because all numbers are estimates.
constexpr double kGain = 1.02;

}  // namespace

DraftPace::Size& DraftPace::size_of(std::int32_t n_sequences) {
  const auto size = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(std::max(1, n_sequences)))) - 1;
  return sizes_[std::min(size, kSizes - 1)];
}

void DraftPace::observe(std::int32_t n_sequences, std::int32_t n_passes, double seconds) {
  Size& size = size_of(n_sequences);
  size.n = kMemoryOfPasses * size.n + n_passes;
  size.seconds = kMemoryOfPasses * size.seconds + seconds;
}

std::int32_t DraftPace::n_drafts(std::int32_t n_sequences, std::int32_t n_most, double acceptance, const RowCost& rows) {
  Size& size = size_of(n_sequences);
  const std::optional<double> plain = rows.seconds(n_sequences, n_sequences);
  if (!plain || size.n == 0) return ++size.n_calls % kStepsToLearn == 0 ? 0 : n_most;
  std::int32_t best = 0;
  double best_rate = kGain / *plain;
  double n_expected = 1;
  double probability = acceptance;
  for (std::int32_t k = 1; k <= n_most; ++k, probability *= acceptance) {
    n_expected += probability;
    const double rate = n_expected / (*rows.seconds(n_sequences, n_sequences * (1 + k)) + k * size.seconds / size.n);
    if (rate <= best_rate) continue;
    best = k;
    best_rate = rate;
  }
  if (best > 0 || ++size.n_refused < kStepsToRetry) return best;
  size.n_refused = 0;
  return n_most;
}

}  // namespace baton
