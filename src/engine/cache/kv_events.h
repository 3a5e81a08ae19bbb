/// Changes of what the prefix cache holds, for routers that send a request to where its prefix is cached.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "engine/cache/block_hash.h"
#include "engine/request/request.h"

namespace baton {

/// Blocks of one layer group that were stored or removed, or the end of all blocks.
struct KvEvent {
  enum class Kind : std::uint8_t {
    stored,   ///< steps that are planned from now on find the blocks
    removed,  ///< they were evicted
    cleared,  ///< the cache holds nothing more, in any group
  };
  Kind kind = Kind::cleared;
  std::int32_t group = 0;              ///< layer group
  std::vector<BlockHash> hashes = {};  ///< stored: of blocks that follow each other; removed: of any
  // Of stored blocks only.
  std::optional<BlockHash> parent = {};  ///< of the block before the first; none: the first begins at position 0
  std::vector<TokenId> tokens = {};      ///< [hashes.size() * block_len]
  std::string adapter = {};              ///< CacheScope::adapter
  std::string salt = {};                 ///< CacheScope::salt where it applies to all of these blocks, else empty

  bool operator==(const KvEvent&) const = default;
};

/// Collects events, and joins adjacent ones. Thread: engine only.
class KvEventRecorder {
 public:
  /// One block was stored. `scope` may be null: no adapter, no salt.
  void stored(int group, const BlockHash& hash, const std::optional<BlockHash>& parent, std::span<const TokenId> tokens,
              const CacheScope* scope, bool is_salted) {
    KvEvent* last = find_last(KvEvent::Kind::stored, group);
    const std::string& salt = is_salted ? scope->salt : none_;
    const std::string& adapter = scope != nullptr ? scope->adapter : none_;
    if (last == nullptr || parent != last->hashes.back() || last->salt != salt || last->adapter != adapter) {
      last = &events_.emplace_back(KvEvent{KvEvent::Kind::stored, group});
      last->parent = parent;
      last->adapter = adapter;
      last->salt = salt;
    }
    last->hashes.push_back(hash);
    last->tokens.insert(last->tokens.end(), tokens.begin(), tokens.end());
  }
  void removed(int group, const BlockHash& hash) {
    KvEvent* last = find_last(KvEvent::Kind::removed, group);
    if (last == nullptr) last = &events_.emplace_back(KvEvent{KvEvent::Kind::removed, group});
    last->hashes.push_back(hash);
  }
  /// The events since the last call, in the order of the changes.
  std::vector<KvEvent> take() { return std::exchange(events_, {}); }

 private:
  /// The last event of this kind and group, unless one of another kind came after it.
  KvEvent* find_last(KvEvent::Kind kind, int group) {
    for (auto event = events_.rbegin(); event != events_.rend() && event->kind == kind; ++event)
      if (event->group == group) return &*event;
    return nullptr;
  }

  std::vector<KvEvent> events_;
  const std::string none_;
};

}  // namespace baton
