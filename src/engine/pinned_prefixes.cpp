/// Names from fill to removal.
#include "engine/pinned_prefixes.h"

#include <utility>

#include <fmt/format.h>

namespace baton {

Result<void> PinnedPrefixes::begin_fill(const std::string& name, Fill& fill) {
  if (!kept_.contains(name) && fills_.emplace(name, &fill).second) return {};
  return fail(ErrorCode::invalid_request, fmt::format("there is a prefix '{}' already", name), "prefix");
}

bool PinnedPrefixes::stop_fill(const std::string& name) {
  const auto at = fills_.find(name);
  if (at == fills_.end()) return false;
  at->second->is_stopped = true;
  return true;
}

bool PinnedPrefixes::stop_fills() {
  for (const auto& [name, fill] : fills_) fill->is_stopped = true;
  return !fills_.empty();
}

Result<PrefixInfo> PinnedPrefixes::end_fill(PrefixInfo info, const Fill& fill, std::int32_t block_len) {
  fills_.erase(info.name);
  if (fill.is_stopped)
    return fail(ErrorCode::unavailable, fmt::format("prefix '{}' was given up while it was being filled", info.name), "prefix");
  if (!*fill.pin) return tl::unexpected<Error>(fill.pin->error());
  info.n_pinned_tokens = (*fill.pin)->n_blocks * block_len;
  kept_.insert_or_assign(info.name, Kept{info, **fill.pin});
  return info;
}

std::optional<KvCache::Pin> PinnedPrefixes::remove(const std::string& name) {
  const auto at = kept_.find(name);
  if (at == kept_.end()) return {};
  const KvCache::Pin pin = at->second.pin;
  kept_.erase(at);
  return pin;
}

std::vector<PrefixInfo> PinnedPrefixes::list() const {
  std::vector<PrefixInfo> infos;
  for (const auto& [name, kept] : kept_) infos.push_back(kept.info);
  return infos;
}

}  // namespace baton
