/// Decides how many prompt rows a step has beside its decodes, from what such steps have taken so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace baton {

/// A function of a number of rows (at least 1), learnt from samples, of which later ones have more weight: linear between places
/// half an octave apart, constant before the first place with samples and after the last. Thread: engine only.
class RowCurve {
 public:
  void observe(double n_rows, double value);
  /// Nothing before the first sample.
  std::optional<double> at(double n_rows) const;

  /// Places are at 1, 1.5, 2, 3, 4, 6, 8, 12, ...
  static constexpr std::size_t kPlaces = 34;
  static double rows_at(std::size_t place) {
    return static_cast<double>(std::uint32_t{1} << (place / 2)) * (place % 2 == 0 ? 1 : 1.5);
  }

 private:
  struct Place {
    double value = 0;
    double n = 0;  ///< samples
  };
  std::array<Place, kPlaces> places_;
};

/// Shares steps between decodes and prompts, so that prompts lengthen the decodes' steps as little as they can and still keep up.
///
/// While a step reads weights, some more rows cost next to nothing; beyond them each row takes its time. So a prompt that is
/// computed at once lengthens one step by more than its parts would lengthen several. The added time per prompt row is learnt from
/// executed steps, for batches of each size: the time of a step less that of a step with as many decodes and no prompts. A step
/// takes the most rows at which a row costs within kMargin of the least, and more if what waits would otherwise take over kMostSteps
/// steps: prompts that come faster than the cheap rows of steps are computed in larger parts, so the rate of requests stays.
///
/// Where fewer rows are not cheaper, a step takes all that it has room for. Thread: engine only.
class PrefillPace {
 public:
  /// Records a step with `n_decodes` rows of decodes and drafts, and `n_prompt_rows` of prompts, that took `seconds`.
  void observe(std::int32_t n_decodes, std::int32_t n_prompt_rows, double seconds);
  /// Records that a sequence was admitted with so many rows to compute, which is what sequences that wait are expected to have.
  void admitted(std::int32_t n_rows);
  double rows_of_waiting() const { return mean_rows_; }

  /// How many of `n_most` prompt rows a step should have beside `n_decodes` decodes if prompts have `n_waiting` rows to compute.
  /// Now and then fewer than would be best, so that their costs are known. Call it once for each step with prompts.
  std::int32_t n_rows(std::int32_t n_decodes, std::int32_t n_waiting, std::int32_t n_most);
  /// The expected time that so many prompt rows add to a step; nothing while it is not known.
  std::optional<double> added_seconds(std::int32_t n_decodes, std::int32_t n_prompt_rows) const;

  static constexpr double kMargin = 1.1;
  static constexpr std::int32_t kMostSteps = 4;    ///< for what waits
  static constexpr std::int32_t kFewestRows = 16;  ///< of a step; times of fewer say little about a row
  static constexpr std::int32_t kTrySteps = 64;    ///< from one try of fewer rows to the next

 private:
  static constexpr std::size_t kSizes = 16;  ///< of batches: powers of two
  static std::size_t size_of(std::int32_t n_decodes);
  std::int32_t cheapest(std::int32_t n_decodes, std::int32_t n_most) const;

  RowCurve decode_seconds_;                   ///< of steps without prompts
  std::array<RowCurve, kSizes> row_seconds_;  ///< what a prompt row adds, by the number of prompt rows
  double mean_rows_ = 0;
  std::int32_t n_asked_ = 0;
};

}  // namespace baton
