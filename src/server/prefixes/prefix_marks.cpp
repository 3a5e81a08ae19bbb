/// Marked prompts: pins in the order of use.
#include <algorithm>
#include <utility>

#include "core/log.h"
#include "server/prefixes/prefixes.h"

namespace baton {
namespace {

/// Marked prompts take at most one block of so many.
constexpr std::int32_t kMarkedPart = 4;

/// Whether the blocks of `shorter` are blocks of `longer` too.
bool covers(const PrefixDefinition& longer, const PrefixDefinition& shorter) {
  return longer.scope == shorter.scope && longer.tokens.size() >= shorter.tokens.size() &&
         std::equal(shorter.tokens.begin(), shorter.tokens.end(), longer.tokens.begin());
}

}  // namespace

std::int64_t Prefixes::n_marked_blocks(const Entry& entry) const {
  return static_cast<std::int64_t>(entry.definition.tokens.size()) / engine_.info().block_len;
}

/// Ends the pins that were not used for the longest time until `fresh` can be pinned too. False if it has no room of its own.
bool Prefixes::make_room_for(const Entry& fresh) {
  const PrefixDefinition& prompt = fresh.definition;
  const std::int64_t max_blocks =
      limits_.max_marked_blocks > 0 ? limits_.max_marked_blocks : engine_.info().n_blocks / kMarkedPart;
  const std::int64_t n_fresh = n_marked_blocks(fresh);
  if (n_fresh == 0 || n_fresh > std::min(max_blocks, prompt.max_pinned_blocks.value_or(max_blocks))) return false;
  const auto shrink = [&](std::int64_t limit, bool is_of_owner) BATON_REQUIRES(mutex_) {
    std::int64_t n_blocks = n_fresh;
    for (auto at = marked_.begin(); at != marked_.end();) {
      const auto pin = at++;
      if (is_of_owner && (*pin)->definition.owner != prompt.owner) continue;
      n_blocks += n_marked_blocks(**pin);
      if (n_blocks > limit) retire(marked_, pin);
    }
  };
  if (prompt.max_pinned_blocks) shrink(*prompt.max_pinned_blocks, true);
  shrink(max_blocks, false);
  return true;
}

bool Prefixes::keep_marked(PrefixDefinition prompt, Clock::time_point now) {
  // A salt that begins after the prompt changes none of its blocks: all may share them.
  if (static_cast<std::size_t>(std::max(prompt.scope.salt_from, 0)) >= prompt.tokens.size())
    prompt.scope = {.adapter = std::move(prompt.scope.adapter), .salt = {}, .salt_from = 0};
  const auto added = std::make_shared<Entry>();  // all of it is there before the engine pins something
  Entries fresh{added};
  added->expires = now + prompt.ttl.value_or(std::chrono::seconds(0));
  added->definition = std::move(prompt);
  const PrefixDefinition& definition = added->definition;
  MutexLock lock(mutex_);
  const auto same = std::ranges::find_if(marked_, [&](const auto& pin) {
    return pin->definition.scope == definition.scope && pin->definition.tokens == definition.tokens;
  });
  if (same != marked_.end()) {
    (*same)->expires = std::max((*same)->expires, added->expires);
    marked_.splice(marked_.begin(), marked_, same);
    return true;
  }
  if (!make_room_for(*added)) return false;
  lock.unlock();
  const auto pinned = engine_.pin(definition.tokens, definition.scope);
  if (!pinned) {
    log::debug("event=cache_control_not_kept reason=\"{}\"", pinned.error().message);
    return false;
  }
  added->info = *pinned;
  lock.lock();
  for (auto at = marked_.begin(); at != marked_.end();) {
    const auto pin = at++;
    const bool is_longer_lived = (*pin)->expires > added->expires;
    if ((*pin)->definition.owner == definition.owner && !is_longer_lived && covers(definition, (*pin)->definition))
      retire(marked_, pin);
  }
  marked_.splice(marked_.begin(), fresh);
  return true;
}

}  // namespace baton
