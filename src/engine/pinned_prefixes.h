/// The registered prefixes of an engine by name, and those that are being filled.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "engine/inbox.h"
#include "engine/kv_cache.h"

namespace baton {

/// A name is taken from the moment its fill is asked for; its pin is kept from the moment it is filled. Thread: whoever holds
/// the engine's mutex.
class PinnedPrefixes {
 public:
  /// Takes a name for a fill, which lives until end_fill. Errors: invalid_request where it is taken.
  Result<void> begin_fill(const std::string& name, Fill& fill);
  /// Nobody wants the fill of this name / any fill any more; false where there is none.
  bool stop_fill(const std::string& name);
  bool stop_fills();
  /// The fill is done: its pin is kept under info.name, and info's pinned tokens set. Errors, and then the name is free: the
  /// fill's own; unavailable where it was stopped, and then what it pinned is left for the caller to unpin.
  Result<PrefixInfo> end_fill(PrefixInfo info, const Fill& fill, std::int32_t block_len);
  /// Forgets a filled prefix and returns what is to be unpinned; nothing when there is none of that name.
  std::optional<KvCache::Pin> remove(const std::string& name);
  /// By name.
  std::vector<PrefixInfo> list() const;

 private:
  struct Kept {
    PrefixInfo info;
    KvCache::Pin pin;
  };
  std::map<std::string, Fill*> fills_;
  std::map<std::string, Kept> kept_;
};

}  // namespace baton
