/// How the keys and values of a prefix's full blocks, and the state after them, follow one another outside of the cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kv_storage.h"
#include "kernels/state_storage.h"

namespace baton {

/// What decides the meaning of the bytes. In each layer group a prefix has the blocks that the row after it sees: all in a group
/// without a window, the last ones in a group with a window. They come in the order of their positions, and for each position in
/// the order of the groups, each in the canonical form of KvStorage. In a model with recurrent layers the layers of the state after
/// the last block follow, in the canonical form of StateStorage. All are cut into pieces of whole blocks and layers.
struct PrefixLayout {
  struct Group {
    KvShape shape;            ///< its number of blocks does not matter
    std::int32_t window = 0;  ///< see CacheGroup
  };
  /// As group of a Block: a layer of the state, whose number is `entry`.
  static constexpr int kStates = -1;
  /// One block of one group, and the number of the piece that it is in.
  struct Block {
    std::int32_t entry = 0;  ///< holds positions [entry * block_len, (entry + 1) * block_len)
    int group = 0;
    std::size_t piece = 0;
  };
  /// A piece has at most so many bytes, or one block or layer.
  static constexpr std::int64_t kPieceBytes = std::int64_t{2} << 20;

  std::int32_t block_len = 16;
  std::vector<Group> groups = {};
  StateShape states = {};  ///< without layers: there are none. Its number of slots does not matter.

  bool has_states() const { return states.n_layers > 0; }
  std::int64_t block_bytes(int group) const {
    return group == kStates ? states.layer_bytes() : groups[static_cast<std::size_t>(group)].shape.block_bytes();
  }
  /// The blocks of a prefix of `n_entries` full blocks, and the layers of the state after them.
  std::vector<Block> blocks(std::int32_t n_entries) const;
  /// The bytes of each of their pieces.
  std::vector<std::uint32_t> piece_bytes(std::int32_t n_entries) const;
  /// Everything above in words: two layouts are equal if their texts are.
  std::string text() const;
};

}  // namespace baton
