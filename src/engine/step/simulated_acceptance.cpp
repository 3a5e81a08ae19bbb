/// Draws one coin for each draft.
#include "engine/step/simulated_acceptance.h"

namespace baton {
namespace {

constexpr std::uint64_t kSeed = 39;

}  // namespace

std::span<const SampleResult> SimulatedAcceptance::apply(const BuiltStep& step, std::span<const SampleResult> results) {
  changed_.assign(results.begin(), results.end());
  for (std::size_t i = 1; i < changed_.size(); ++i) {
    const std::span<const TokenId> drafts = step.drafts_of_sample[i];
    if (drafts.empty()) continue;
    TokenId& before = changed_[i - 1].token;
    const bool is_accepted = static_cast<double>(split_mix(kSeed, n_drawn_++) >> 11) * 0x1p-53 < probability_;
    if (is_accepted)
      before = drafts.back();
    else if (before == drafts.back())
      before = (before + 1) % n_vocab_;
  }
  return changed_;
}

}  // namespace baton
