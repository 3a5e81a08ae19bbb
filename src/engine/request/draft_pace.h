/// Decides how many drafts a model's own layer makes after a step, from what such drafts have cost and given so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/request/speculation.h"

namespace baton {

/// Times of draft passes, for each batch size; older ones have less weight. Thread: engine only.
class DraftPace {
 public:
  /// Records that `n_passes` passes after a step with `n_sequences` decoding sequences took `seconds`.
  void observe(std::int32_t n_sequences, std::int32_t n_passes, double seconds);

  /// The number of drafts, up to `n_most`, with which most tokens a second are expected of the next step with `n_sequences`
  /// sequences, all of which draft: a draft is accepted with the probability `acceptance` if those before it were. While the costs
  /// are not known, some steps have all drafts and some none. If 0 is best, all are tried again now and then. Call it once a step.
  std::int32_t n_drafts(std::int32_t n_sequences, std::int32_t n_most, double acceptance, const RowCost& rows);

 private:
  struct Size {
    double n = 0, seconds = 0;   ///< of passes, weighted by age
    std::int32_t n_calls = 0;    ///< while something was not known
    std::int32_t n_refused = 0;  ///< steps without drafts since the last try
  };
  static constexpr std::size_t kSizes = 16;  ///< of batches: powers of two
  Size& size_of(std::int32_t n_sequences);

  std::array<Size, kSizes> sizes_;
};

}  // namespace baton
