/// The registered prefixes of an engine by name.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/result.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"

namespace baton {

/// A name is taken from the moment its fill is asked for; its pin is kept from the moment it is filled. Thread: whoever holds
/// the engine's mutex.
class PinnedPrefixes {
 public:
  Result<void> reserve(const std::string& name) {
    if (names_.insert(name).second) return {};
    return fail(ErrorCode::invalid_request, fmt::format("there is a prefix '{}' already", name), "prefix");
  }
  /// The fill of a reserved name failed / is done.
  void drop(const std::string& name) { names_.erase(name); }
  void keep(PrefixInfo info, const KvCache::Pin& pin) {
    const std::string name = info.name;
    kept_.insert_or_assign(name, Kept{std::move(info), pin});
  }
  /// Forgets a filled prefix and returns what is to be unpinned; nothing when there is none of that name.
  std::optional<KvCache::Pin> remove(const std::string& name) {
    const auto at = kept_.find(name);
    if (at == kept_.end()) return {};
    const KvCache::Pin pin = at->second.pin;
    kept_.erase(at);
    names_.erase(name);
    return pin;
  }
  /// By name.
  std::vector<PrefixInfo> list() const {
    std::vector<PrefixInfo> infos;
    for (const auto& [name, kept] : kept_) infos.push_back(kept.info);
    return infos;
  }

 private:
  struct Kept {
    PrefixInfo info;
    KvCache::Pin pin;
  };
  std::set<std::string> names_;
  std::map<std::string, Kept> kept_;
};

}  // namespace baton
