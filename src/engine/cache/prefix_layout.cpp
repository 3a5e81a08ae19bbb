/// Lists the blocks of a prefix, and cuts the list into pieces.
#include "engine/cache/prefix_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/cache/cache_group.h"

namespace baton {

std::vector<PrefixLayout::Block> PrefixLayout::blocks(std::int32_t n_entries) const {
  std::vector<std::int32_t> first_stored;
  for (const Group& group : groups)
    first_stored.push_back(CacheGroup{.window = group.window}.first_block_seen(n_entries * block_len, block_len));
  std::vector<Block> blocks;
  std::size_t piece = 0;
  std::int64_t n_bytes = 0;  // of the piece
  const auto add = [&](std::int32_t entry, int group) {
    const std::int64_t bytes = block_bytes(group);
    if (n_bytes > 0 && n_bytes + bytes > kPieceBytes) {
      ++piece;
      n_bytes = 0;
    }
    n_bytes += bytes;
    blocks.push_back({entry, group, piece});
  };
  for (std::int32_t entry = 0; entry < n_entries; ++entry)
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (entry >= first_stored[g]) add(entry, static_cast<int>(g));
  if (n_entries > 0)
    for (std::int32_t layer = 0; layer < states.n_layers; ++layer) add(layer, kStates);
  return blocks;
}

std::vector<std::uint32_t> PrefixLayout::piece_bytes(std::int32_t n_entries) const {
  std::vector<std::uint32_t> bytes;
  for (const Block& block : blocks(n_entries)) {
    if (block.piece == bytes.size()) bytes.push_back(0);
    bytes[block.piece] += static_cast<std::uint32_t>(block_bytes(block.group));
  }
  return bytes;
}

std::string PrefixLayout::text() const {
  std::string text = fmt::format("blocks of {} tokens", block_len);
  for (const auto& [shape, window] : groups) {
    text += fmt::format("; {} layers, {} KV heads of {}, {}", shape.n_layers, shape.n_kv_heads, shape.head_dim,
                        to_string(shape.dtype));
    if (!shape.has_values()) text += fmt::format(", values in the first {}", shape.latent_dim);
    if (window > 0) text += fmt::format(", window {}", window);
    if (!shape.k_scales.empty()) text += fmt::format(", key scales {}", fmt::join(shape.k_scales, " "));
    if (!shape.v_scales.empty()) text += fmt::format(", value scales {}", fmt::join(shape.v_scales, " "));
  }
  if (has_states())
    text += fmt::format("; states of {} layers, {} x {} inputs, {} heads of {} x {}, {}", states.n_layers, states.conv_len,
                        states.n_channels, states.n_heads, states.key_dim, states.value_dim, to_string(states.matrix_dtype));
  return text;
}

}  // namespace baton
