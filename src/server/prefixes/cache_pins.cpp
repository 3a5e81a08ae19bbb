/// A list of pins in the order of use.
#include "server/prefixes/cache_pins.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/log.h"

namespace baton {
namespace {

/// Whether the blocks of `shorter` are blocks of `longer` too.
bool covers(const CachePinRequest& longer, const CachePinRequest& shorter) {
  return longer.scope == shorter.scope && longer.tokens.size() >= shorter.tokens.size() &&
         std::equal(shorter.tokens.begin(), shorter.tokens.end(), longer.tokens.begin());
}

}  // namespace

void CachePins::remove(Engine& engine, Pins::iterator pin) {
  engine.unpin(pin->id);
  n_blocks_ -= pin->n_blocks;
  pins_.erase(pin);
}

/// Ends shorter pins whose blocks the new one keeps at least as long.
void CachePins::remove_covered(Engine& engine, const Pin& by) {
  for (auto at = pins_.begin(); at != pins_.end();) {
    const auto pin = at++;
    if (&*pin != &by && pin->request.owner == by.request.owner && pin->expires <= by.expires &&
        covers(by.request, pin->request))
      remove(engine, pin);
  }
}

void CachePins::shrink_owner(Engine& engine, const std::string& owner, std::int64_t n_blocks) {
  std::int64_t n_owned = 0;
  for (auto at = pins_.begin(); at != pins_.end();) {
    const auto pin = at++;
    if (pin->request.owner != owner) continue;
    n_owned += pin->n_blocks;
    if (n_owned > n_blocks) remove(engine, pin);
  }
}

bool CachePins::keep(Engine& engine, CachePinRequest request, Clock::time_point now) {
  remove_expired(engine, now);
  // A salt that begins behind the prompt changes none of its blocks: all may share them.
  if (static_cast<std::size_t>(std::max(request.scope.salt_from, 0)) >= request.tokens.size())
    request.scope = {.adapter = std::move(request.scope.adapter), .salt = {}, .salt_from = 0};
  const auto same = std::ranges::find_if(
      pins_, [&](const Pin& pin) { return pin.request.scope == request.scope && pin.request.tokens == request.tokens; });
  if (same != pins_.end()) {
    same->expires = std::max(same->expires, now + request.ttl);
    pins_.splice(pins_.begin(), pins_, same);
    return true;
  }
  const auto n_blocks = static_cast<std::int64_t>(request.tokens.size()) / engine.info().block_len;
  const std::int64_t most = std::min(max_blocks_, request.owner_blocks.value_or(max_blocks_));
  if (n_blocks == 0 || n_blocks > most) return false;
  if (request.owner_blocks) shrink_owner(engine, request.owner, *request.owner_blocks - n_blocks);
  while (n_blocks_ + n_blocks > max_blocks_) remove(engine, std::prev(pins_.end()));
  Pins fresh;  // all of it is there before the engine pins something
  Pin& pin = fresh.emplace_front(Pin{std::move(request), {}, n_blocks, now + request.ttl});
  const auto pinned = engine.pin(pin.request.tokens, pin.request.scope);
  if (!pinned) {
    log::debug("event=cache_control_not_kept reason=\"{}\"", pinned.error().message);
    return false;
  }
  pin.id = pinned->id;
  pins_.splice(pins_.begin(), fresh);
  n_blocks_ += n_blocks;
  remove_covered(engine, pins_.front());
  return true;
}

std::optional<CachePins::Clock::time_point> CachePins::remove_expired(Engine& engine, Clock::time_point now) {
  std::optional<Clock::time_point> next;
  for (auto at = pins_.begin(); at != pins_.end();) {
    const auto pin = at++;
    if (pin->expires <= now)
      remove(engine, pin);
    else
      next = std::min(next.value_or(pin->expires), pin->expires);
  }
  return next;
}

}  // namespace baton
