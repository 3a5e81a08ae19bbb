/// Which blocks a stored prefix has, and in which pieces (engine/cache/prefix_layout.h).
#include "engine/cache/prefix_layout.h"

#include <numeric>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr KvShape kSmall{.n_layers = 2, .n_kv_heads = 1, .head_dim = 8, .dtype = DType::f32};     // 2 KiB a block
constexpr KvShape kLarge{.n_layers = 16, .n_kv_heads = 8, .head_dim = 256, .dtype = DType::f32};  // 4 MiB
constexpr KvShape kHalf{.n_layers = 4, .n_kv_heads = 8, .head_dim = 256, .dtype = DType::f32};    // 1 MiB

std::vector<std::pair<int, int>> pairs_of(const PrefixLayout& layout, std::int32_t n_entries) {
  std::vector<std::pair<int, int>> pairs;
  for (const auto& block : layout.blocks(n_entries)) pairs.emplace_back(block.entry, block.group);
  return pairs;
}

TEST(PrefixLayout, has_all_blocks_without_a_window_and_the_last_ones_with_one) {
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(pairs_of({16, {{kSmall, 0}}}, 3), (Pairs{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_EQ(pairs_of({16, {{kSmall, 0}}}, 0), Pairs{});
  // The row at position 64 sees positions 48 to 64, so block 3 only; with a window of 18 also position 47.
  EXPECT_EQ(pairs_of({16, {{kSmall, 0}, {kSmall, 17}}}, 4), (Pairs{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {3, 1}}));
  EXPECT_EQ(pairs_of({16, {{kSmall, 0}, {kSmall, 18}}}, 4), (Pairs{{0, 0}, {1, 0}, {2, 0}, {2, 1}, {3, 0}, {3, 1}}));
  EXPECT_EQ(pairs_of({16, {{kSmall, 1}}}, 4), Pairs{}) << "the next row sees itself only";
}

TEST(PrefixLayout, cuts_pieces_between_blocks) {
  EXPECT_EQ((PrefixLayout{16, {{kLarge, 0}}}.piece_bytes(3)), std::vector<std::uint32_t>(3, 4 << 20)) << "one block at least";
  EXPECT_EQ((PrefixLayout{16, {{kHalf, 0}}}.piece_bytes(5)), (std::vector<std::uint32_t>{2 << 20, 2 << 20, 1 << 20}));
  EXPECT_EQ((PrefixLayout{16, {{kHalf, 0}, {kLarge, 0}}}.piece_bytes(2)),
            (std::vector<std::uint32_t>{1 << 20, 4 << 20, 1 << 20, 4 << 20}));
  EXPECT_TRUE((PrefixLayout{16, {{kSmall, 0}}}.piece_bytes(0).empty()));
  const PrefixLayout layout{16, {{kSmall, 0}, {kHalf, 100}}};
  const auto pieces = layout.piece_bytes(1000);
  std::int64_t n_bytes = 0;
  for (const auto& block : layout.blocks(1000)) n_bytes += layout.block_bytes(block.group);
  EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0}), n_bytes);
  for (const std::uint32_t piece : pieces) EXPECT_LE(piece, PrefixLayout::kPieceBytes);
}

TEST(PrefixLayout, tells_every_difference_in_its_text) {
  const PrefixLayout layout{16, {{kSmall, 0}, {kHalf, 64}}};
  EXPECT_EQ(layout.text(),
            "blocks of 16 tokens; 2 layers, 1 KV heads of 8, float32; 4 layers, 8 KV heads of 256, float32, window 64");
  std::vector<PrefixLayout> others(8, layout);
  others[0].block_len = 32;
  others[1].groups[0].shape.n_layers = 3;
  others[2].groups[0].shape.n_kv_heads = 2;
  others[3].groups[0].shape.head_dim = 16;
  others[4].groups[0].shape.dtype = DType::bf16;
  others[5].groups[1].window = 65;
  others[6].groups[1].shape.k_scales = {1, 2, 3, 0.1F};
  others[7].groups[1].shape.v_scales = {1, 2, 3, 0.1F};
  for (const PrefixLayout& other : others) EXPECT_NE(other.text(), layout.text());
  PrefixLayout nearly = others[6];
  nearly.groups[1].shape.k_scales.back() = 0.10000001F;
  EXPECT_NE(nearly.text(), others[6].text()) << "scales in full";
}

}  // namespace
}  // namespace baton
