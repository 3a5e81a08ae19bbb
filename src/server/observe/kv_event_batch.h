/// KV events as subscribers read them, and what they add up to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache/cache_group.h"
#include "engine/cache/kv_events.h"
#include "server/observe/kv_events_config.h"

namespace baton {

/// What all messages of a server have in common.
struct KvEventFormat {
  KvEventEncoding encoding = KvEventEncoding::map;
  KvBlockNames block_names = KvBlockNames::integers;
  std::int32_t block_len = 16;
  std::vector<CacheGroup> groups = {};
  std::string medium = "GPU";  ///< where the blocks are: "GPU" or "CPU"
};

/// MessagePack of a batch as vLLM publishes it: [time in seconds, [event, ...], data-parallel rank]. An event is an
/// object {type, ...} without fields that have their defaults, or a list of the type and all fields in order.
std::vector<std::uint8_t> encode_kv_events(std::span<const KvEvent> events, double time_s, const KvEventFormat& format);

/// The blocks that a cache holds after a number of events, so that a subscriber that missed some can begin again.
class KvEventMirror {
 public:
  explicit KvEventMirror(std::int32_t block_len) : block_len_(block_len) {}

  void apply(const KvEvent& event);
  /// Events that lead from nothing known to the blocks held: `cleared`, then `stored` in the order in which they were
  /// stored.
  std::vector<KvEvent> snapshot() const;
  std::size_t n_blocks() const { return blocks_.size(); }

 private:
  using Name = std::pair<std::int32_t, BlockHash>;  ///< layer group and hash
  struct NameHash {
    std::size_t operator()(const Name& name) const {
      return std::hash<BlockHash>{}(name.second) + static_cast<std::size_t>(name.first);
    }
  };
  struct Block {
    std::optional<BlockHash> parent;
    std::vector<TokenId> tokens;
    CacheScope scope;  ///< with the salt only if it applies to the block
  };

  std::int32_t block_len_;
  std::map<std::uint64_t, std::pair<Name, Block>> blocks_;  ///< by the order in which they were stored
  std::unordered_map<Name, std::uint64_t, NameHash> numbers_;
  std::uint64_t next_number_ = 0;
};

}  // namespace baton
