/// The layout of keys and values on a CUDA device: each byte has one place, panels, and the swizzle that avoids bank
/// conflicts. This is pure arithmetic and needs no device.
#include "kernels/cuda/kv/kv_layout.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

std::vector<KvLayout> layouts() {
  std::vector<KvLayout> all;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f8_e4m3})
    for (const int head_dim : {2, 64, 66, 80, 96, 112, 128, 130, 256})
      for (const int block_len : {16, 32, 256}) {
        KvShape shape;
        shape.n_layers = 1;
        shape.n_blocks = 3;
        shape.block_len = block_len;
        shape.n_kv_heads = 3;
        shape.head_dim = head_dim;
        shape.dtype = dtype;
        all.push_back(kv_layout(shape));
      }
  for (const int latent_dim : {256, 512})
    for (const int block_len : {16, 32, 256}) {
      KvShape shape{1, 3, block_len, 1, latent_dim + 64, DType::bf16};
      shape.latent_dim = latent_dim;
      all.push_back(kv_layout(shape));
    }
  return all;
}

TEST(KvLayout, pads_rows_to_what_kernels_are_compiled_for_and_to_whole_64_bytes) {
  EXPECT_EQ(padded_row_bytes(2, 2), 128);
  EXPECT_EQ(padded_row_bytes(64, 2), 128);
  EXPECT_EQ(padded_row_bytes(66, 2), 192);
  EXPECT_EQ(padded_row_bytes(96, 2), 192);
  EXPECT_EQ(padded_row_bytes(98, 2), 256);
  EXPECT_EQ(padded_row_bytes(130, 2), 512);
  EXPECT_EQ(padded_row_bytes(64, 1), 64);
  EXPECT_EQ(padded_row_bytes(80, 1), 128);
  EXPECT_EQ(padded_row_bytes(96, 1), 128);
  EXPECT_EQ(padded_row_bytes(256, 1), 256);
}

TEST(KvLayout, has_one_part_without_padding_where_values_are_the_beginnings_of_keys) {
  const KvLayout layout = layouts().back();
  EXPECT_EQ(layout.n_parts, 1);
  EXPECT_EQ(layout.row_bytes, 576 * 2);
}

TEST(KvLayout, gives_every_byte_of_a_tile_one_place) {
  for (const KvLayout& layout : layouts()) {
    std::vector<int> times(static_cast<std::size_t>(layout.tile_bytes()), 0);
    for (int token = 0; token < layout.block_len; ++token)
      for (int byte = 0; byte < layout.row_bytes; ++byte) {
        const std::int32_t at = layout.byte_in_tile(token, byte);
        ASSERT_GE(at, 0);
        ASSERT_LT(at, layout.tile_bytes()) << "row_bytes " << layout.row_bytes << ", token " << token << ", byte " << byte;
        ++times[static_cast<std::size_t>(at)];
      }
    for (const int n : times) ASSERT_EQ(n, 1) << "row_bytes " << layout.row_bytes << ", block_len " << layout.block_len;
  }
}

TEST(KvLayout, gives_every_tile_of_a_layer_one_place_aligned_to_1024_bytes) {
  for (const KvLayout& layout : layouts()) {
    std::set<std::int64_t> offsets;
    for (std::int64_t block = 0; block < 3; ++block)
      for (int part = 0; part < layout.n_parts; ++part)
        for (int head = 0; head < layout.n_kv_heads; ++head) offsets.insert(layout.tile_offset(block, part, head));
    ASSERT_EQ(offsets.size(), static_cast<std::size_t>(3 * layout.n_parts * layout.n_kv_heads));
    std::int64_t expected = 0;
    for (const std::int64_t offset : offsets) {
      ASSERT_EQ(offset, expected);
      ASSERT_EQ(offset % 1024, 0);
      expected += layout.tile_bytes();
    }
    ASSERT_EQ(layout.block_bytes(), layout.tile_bytes() * layout.n_parts * layout.n_kv_heads);
  }
}

TEST(KvLayout, counts_the_bytes_of_far_blocks_in_64_bits) {
  const KvLayout layout{256, 64, 512};
  EXPECT_EQ(layout.tile_offset(1'000'000, 1, 63), 1'000'000LL * 256 * 512 * 128 + 127LL * 256 * 512);
}

TEST(KvLayout, keeps_panels_whole_and_runs_of_tokens_together) {
  for (const KvLayout& layout : layouts())
    for (int byte = 0; byte < layout.row_bytes; ++byte) {
      const int panel = byte / KvLayout::kPanelBytes;
      const int panel_row = std::min(KvLayout::kPanelBytes, layout.row_bytes - panel * KvLayout::kPanelBytes);
      const int panel_begin = panel * KvLayout::kPanelBytes * layout.block_len;
      for (int token = 0; token < layout.block_len; ++token) {
        const std::int32_t at = layout.byte_in_tile(token, byte);
        ASSERT_EQ((at - panel_begin) / panel_row, token) << "a token's row of a panel stands after the one before it";
        ASSERT_EQ(at % KvLayout::kChunkBytes, byte % KvLayout::kChunkBytes) << "16 bytes stay together";
      }
    }
}

/// The 128-byte and 64-byte swizzle of wgmma and bulk copies, by its definition on addresses: bits 4 to 6 (4 and 5)
/// are exclusive-ored with bits 7 to 9 (7 and 8).
TEST(KvLayout, exchanges_chunks_as_the_hardware_does) {
  for (const KvLayout& layout : layouts())
    for (int token = 0; token < layout.block_len; ++token)
      for (int byte = 0; byte < layout.row_bytes; ++byte) {
        const int panel = byte / KvLayout::kPanelBytes;
        const int panel_row = std::min(KvLayout::kPanelBytes, layout.row_bytes - panel * KvLayout::kPanelBytes);
        const int plain =
            panel * KvLayout::kPanelBytes * layout.block_len + token * panel_row + (byte - panel * KvLayout::kPanelBytes);
        const int bits = panel_row == KvLayout::kPanelBytes ? 7 : 3;
        ASSERT_EQ(layout.byte_in_tile(token, byte), plain ^ ((plain >> 7 & bits) << 4))
            << "row_bytes " << layout.row_bytes << ", token " << token << ", byte " << byte;
      }
}

/// ldmatrix reads the same 16 bytes of eight consecutive tokens, from token 0 or 8 of a 16-token run. They must lie in
/// different groups of four banks.
TEST(KvLayout, spreads_eight_tokens_over_all_banks) {
  for (const KvLayout& layout : layouts())
    for (int byte = 0; byte < layout.row_bytes; byte += KvLayout::kChunkBytes)
      for (int token = 0; token < layout.block_len; token += 8) {
        std::set<int> banks;
        for (int i = 0; i < 8; ++i) banks.insert(layout.byte_in_tile(token + i, byte) / KvLayout::kChunkBytes % 8);
        ASSERT_EQ(banks.size(), 8u) << "row_bytes " << layout.row_bytes << ", token " << token << ", byte " << byte;
      }
}

}  // namespace
}  // namespace baton::cuda
