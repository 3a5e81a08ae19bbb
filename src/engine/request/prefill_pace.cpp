/// Costs of prompt rows, and the choice of their number.
#include "engine/request/prefill_pace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace baton {
namespace {

constexpr double kLeastPaceWeight = 0.08;  ///< of a new sample
constexpr double kMostPaceExcess = 3;      ///< a sample that differs more from what is known is cut to so many times as much
constexpr double kNewPromptWeight = 0.05;  ///< weight of an admitted sequence among those before

std::size_t place_below(double n_rows) {
  std::size_t place = 0;
  while (place + 2 < RowCurve::kPlaces && RowCurve::rows_at(place + 1) <= n_rows) ++place;
  return place;
}

}  // namespace

void RowCurve::observe(double n_rows, double value) {
  const std::size_t first = place_below(n_rows);
  const std::optional<double> expected = at(n_rows);
  if (expected && *expected > 0) value = std::min(value, kMostPaceExcess * *expected);
  const double second_share = std::clamp((n_rows - rows_at(first)) / (rows_at(first + 1) - rows_at(first)), 0.0, 1.0);
  const std::array<double, 2> shares{1 - second_share, second_share};
  // Both changes are relative to what was expected before either.
  const double excess = value - expected.value_or(value);
  for (std::size_t i = 0; i < 2; ++i) {
    if (shares[i] <= 0) continue;
    Place& place = places_[first + i];
    const std::optional<double> known = at(rows_at(first + i));
    if (place.n == 0) place.value = known.value_or(value);
    place.n += shares[i];
    place.value += shares[i] * std::max(kLeastPaceWeight, std::min(1.0, 1 / place.n)) * excess;
  }
}

std::optional<double> RowCurve::at(double n_rows) const {
  const std::size_t place = place_below(n_rows);
  std::optional<std::size_t> below, above;
  for (std::size_t i = place + 1; i-- > 0 && !below;)
    if (places_[i].n > 0) below = i;
  for (std::size_t i = place + 1; i < kPlaces && !above; ++i)
    if (places_[i].n > 0) above = i;
  if (!below && !above) return std::nullopt;
  if (!below || !above) return places_[below.value_or(above.value_or(0))].value;
  const double share = (n_rows - rows_at(*below)) / (rows_at(*above) - rows_at(*below));
  return places_[*below].value + share * (places_[*above].value - places_[*below].value);
}

std::size_t PrefillPace::size_of(std::int32_t n_decodes) {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(n_decodes))) - 1, kSizes - 1);
}

void PrefillPace::observe(std::int32_t n_decodes, std::int32_t n_prompt_rows, double seconds) {
  if (n_decodes < 1) return;
  if (n_prompt_rows < 1) return decode_seconds_.observe(n_decodes, seconds);
  const std::optional<double> alone = decode_seconds_.at(n_decodes);
  if (n_prompt_rows < kFewestRows || !alone) return;
  row_seconds_[size_of(n_decodes)].observe(n_prompt_rows, std::max(0.0, seconds - *alone) / n_prompt_rows);
}

void PrefillPace::admitted(std::int32_t n_rows) {
  mean_rows_ = mean_rows_ == 0 ? n_rows : mean_rows_ + kNewPromptWeight * (n_rows - mean_rows_);
}

std::optional<double> PrefillPace::added_seconds(std::int32_t n_decodes, std::int32_t n_prompt_rows) const {
  if (n_decodes < 1 || n_prompt_rows < 1) return 0;
  const std::optional<double> row = row_seconds_[size_of(n_decodes)].at(n_prompt_rows);
  return row ? std::optional(*row * n_prompt_rows) : std::nullopt;
}

/// The most of up to `n_most` rows at which a row costs within kMargin of the least.
std::int32_t PrefillPace::cheapest(std::int32_t n_decodes, std::int32_t n_most) const {
  const RowCurve& row_seconds = row_seconds_[size_of(n_decodes)];
  const std::optional<double> all = row_seconds.at(n_most);
  if (!all) return n_most;
  double least = *all;
  for (std::size_t place = 0; place < RowCurve::kPlaces && RowCurve::rows_at(place) < n_most; ++place)
    if (RowCurve::rows_at(place) >= kFewestRows) least = std::min(least, *row_seconds.at(RowCurve::rows_at(place)));
  if (*all <= kMargin * least) return n_most;
  std::int32_t most = kFewestRows;
  for (std::size_t place = 0; place < RowCurve::kPlaces && RowCurve::rows_at(place) < n_most; ++place)
    if (*row_seconds.at(RowCurve::rows_at(place)) <= kMargin * least)
      most = std::max(most, static_cast<std::int32_t>(RowCurve::rows_at(place)));
  return most;
}

std::int32_t PrefillPace::n_rows(std::int32_t n_decodes, std::int32_t n_waiting, std::int32_t n_most) {
  if (n_decodes < 1 || n_waiting <= kFewestRows || n_most <= kFewestRows) return n_most;
  const std::int32_t n_all = std::min(n_waiting, n_most);
  const std::int32_t n_timely = (n_waiting + kMostSteps - 1) / kMostSteps;
  // A half, a quarter, an eighth in turn.
  const std::int32_t n_tries = ++n_asked_ / kTrySteps;
  const bool is_try = n_asked_ % kTrySteps == 0;
  const std::int32_t n_best = is_try ? n_all >> (1 + n_tries % 3) : cheapest(n_decodes, n_all);
  const std::int32_t n_chosen = std::max({n_best, n_timely, kFewestRows});
  return n_chosen >= n_all ? n_most : n_chosen;
}

}  // namespace baton
