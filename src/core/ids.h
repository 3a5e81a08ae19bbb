/// Ids as distinct types, so that a block id cannot be used as a sequence id.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace baton {

using TokenId = std::int32_t;

/// A number that compares only with ids of its own kind. `value` is -1 for no id.
template <class Kind, class Value>
struct Id {
  Value value = -1;
  constexpr auto operator<=>(const Id&) const = default;
  constexpr bool is_valid() const { return value >= 0; }
};

using RequestId = Id<struct RequestKind, std::int64_t>;
using SequenceId = Id<struct SequenceKind, std::int64_t>;
using BlockId = Id<struct BlockKind, std::int32_t>;  ///< a fixed run of KV positions in the storage
using SlotId = Id<struct SlotKind, std::int32_t>;    ///< a running sequence's row of the slot table

}  // namespace baton

template <class Kind, class Value>
struct std::hash<baton::Id<Kind, Value>> {
  std::size_t operator()(const baton::Id<Kind, Value>& id) const noexcept { return std::hash<Value>{}(id.value); }
};
