/// How sampling cuts rows of logits into parts, and what it keeps of each part. Pure arithmetic, for host and device.
///
/// A part's *near list* contains every finite logit of the part from a threshold on. The largest threshold of a row's
/// parts is the row's: every token from it on is in one of the lists, so the lists replace the row wherever only the
/// most likely tokens matter. Parts have a fixed size, so no result depends on the number of samples.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formulas.h"

namespace baton::cuda {

inline constexpr int kGatherThreads = 256;
inline constexpr int kGatherLoads = 8;  ///< of kIdsAtOnce logits, for each thread
inline constexpr int kIdsAtOnce = 4;    ///< ids that share one Philox number
/// Adjacent tokens that eight lanes load at once. Successive units belong to successive parts, and those of a part to
/// successive warps, so that each part and each warp has its share of the tokens with small ids, often the likely ones.
inline constexpr int kUnitTokens = 32;
inline constexpr int kUnitsOfPart = kGatherThreads * kGatherLoads * kIdsAtOnce / kUnitTokens;
inline constexpr int kPartTokens = kUnitsOfPart * kUnitTokens;
inline constexpr int kNearRoom = 128;     ///< tokens of a near list
inline constexpr int kMostNear = 512;     ///< tokens of all lists of a row from the row's threshold on
inline constexpr int kListThreads = 256;  ///< threads that work on a row's list, and its tokens then

/// A logit's bits as an integer that is larger for a larger logit. The sign of a zero is ignored.
using LogitKey = std::uint32_t;
inline constexpr LogitKey kLeastFiniteKey = 0x00800000u;  ///< of the least finite number
inline constexpr LogitKey kNoThreshold = ~LogitKey{0};    ///< of a part without a usable list

/// A part's scores, log p + noise, are computed from its own largest logit, and the row's from the row's, so they differ
/// by rounding. Scores that may win differ by less than this: they are within 20 of the largest.
inline constexpr float kScoreRounding = 0x1p-12f;
inline constexpr int kDrawnRoom = 2;  ///< tokens of a part whose scores are within kScoreRounding of its largest

/// What is known of a part.
struct PartRecord {
  std::uint64_t best = 0;    ///< the largest place (radix_select.cuh)
  double sum = 0;            ///< of exp(logit - the part's largest)
  LogitKey threshold = 0;    ///< the near list contains all from it on; kNoThreshold: it had no room for all
  std::uint32_t n_near = 0;  ///< entries of the near list
};
/// What was drawn from a part, if the whole row is drawn from. Apart from the record, so that others do not read past it.
struct PartDraw {
  std::uint64_t tokens[kDrawnRoom] = {};  ///< places of ids that may have the part's largest score
  std::uint32_t n = 0;                    ///< over kDrawnRoom: unknown
};
/// Parts that a launch has room for. More samples than these belong to are processed by several launches.
inline constexpr std::int32_t kSampleParts = 8192;
inline constexpr std::size_t kPartBytes = sizeof(PartRecord) + sizeof(PartDraw) + kNearRoom * sizeof(std::uint64_t);

BATON_HOST_DEVICE constexpr std::int32_t n_parts_of(std::int32_t n_vocab) { return (n_vocab + kPartTokens - 1) / kPartTokens; }

/// The first token of a part's unit. May lie after the vocabulary.
BATON_HOST_DEVICE constexpr std::int32_t first_of_unit(std::int32_t part, std::int32_t n_parts, std::int32_t unit) {
  return (unit * n_parts + part) * kUnitTokens;
}

/// A part's threshold is the sixth smallest of its warps' near_rank-th largest thread maxima: three warps and some have
/// tokens enough, so that it is high even where all likely tokens belong to a few warps. Few parts need long lists; so
/// the row's list has 60 to 250 tokens in each vocabulary, if its likely tokens are anywhere.
inline constexpr int kSmallerWarps = 5;
BATON_HOST_DEVICE constexpr int near_rank(std::int32_t n_parts) {
  return n_parts <= 1 ? 11 : n_parts <= 2 ? 9 : n_parts <= 4 ? 6 : n_parts <= 8 ? 4 : n_parts <= 24 ? 3 : n_parts <= 64 ? 2 : 1;
}

/// Bisection for a key that `wanted` to 1.25 `wanted` of some keys reach. The caller counts the keys that reach
/// middle() and says how many until is_done(). Then `low` is the result: at least `wanted` keys reach it, and more than
/// asked where keys tie.
struct ThresholdSearch {
  LogitKey low;   ///< at least `wanted` reach it
  LogitKey high;  ///< fewer than `wanted` reach it
  int wanted;

  BATON_HOST_DEVICE constexpr bool is_done() const { return high - low <= 1; }
  BATON_HOST_DEVICE constexpr LogitKey middle() const { return low + (high - low) / 2; }
  BATON_HOST_DEVICE constexpr void take(int n_reached) {
    const LogitKey key = middle();
    if (n_reached < wanted) {
      high = key;
    } else {
      low = key;
      if (n_reached <= wanted + wanted / 4) high = key + 1;
    }
  }
};

/// What a row's list is known to contain: all tokens from a threshold on.
struct NearCut {
  std::int32_t n_left = 0;  ///< the first tokens of the sorted list, which are left after min_p and top_k
  bool is_all = false;      ///< no token outside the list is left
};

/// The list's tokens that min_p and top_k leave. `n` tokens are in the list, `n_likely` of them reach min_p; they are
/// the first. `has_all_likely`: no token below the threshold reaches min_p or is finite.
BATON_HOST_DEVICE constexpr NearCut cut_near(std::int32_t n_likely, bool has_all_likely, std::int32_t top_k) {
  if (top_k > 0 && top_k <= n_likely) return {top_k, true};
  return {n_likely, has_all_likely};
}

}  // namespace baton::cuda
