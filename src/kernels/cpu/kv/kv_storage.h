/// Keys and values in host memory, in tiles of 16 tokens that vector units read without shuffles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "kernels/kv_storage.h"

namespace baton::cpu {

/// Tokens of a tile; block_len is a multiple of it.
inline constexpr std::int32_t kTileTokens = 16;
/// The largest head_dim that the CPU's attention accepts, with values and without.
inline constexpr std::int32_t kMaxHeadDim = 256;
inline constexpr std::int32_t kMaxLatentHeadDim = 576;

/// [layer][KV head][block][tile of 16 tokens][K part, V part], each part a multiple of 64 bytes. v_dim is KvShape::v_dim
/// rounded up to a multiple of 16; the padding never affects a result. A storage without values (KvShape::latent_dim)
/// has the V part all the same, because scores and outputs read numbers in different orders.
///
///     f32   K part [head_dim][16 tokens]             V part [16 tokens][v_dim]
///     bf16  K part [head_dim / 2][16 tokens][2]      V part [8][v_dim][2 tokens]
/// Pairs begin at even dimensions and tokens.
///
/// Thread: engine only; write_token may run in several threads for different (head, kv_index).
class CpuKvStorage final : public KvStorage {
 public:
  /// Errors: unsupported (a dtype other than f32 and bf16, an odd head_dim or one over the largest), out_of_memory.
  static Result<std::unique_ptr<CpuKvStorage>> make(const KvShape& shape);
  ~CpuKvStorage() override;
  /// Bytes that a storage of `shape` takes for one block, over all layers and heads.
  static std::int64_t bytes_of_block(const KvShape& shape);

  void copy_blocks(std::span<const BlockId> from, std::span<const BlockId> to) override;
  void export_block(BlockId block, TensorView out) const override;
  void import_block(BlockId block, ConstTensorView in) override;
  void save_block(BlockId block, std::byte* host) const override;
  void load_block(BlockId block, const std::byte* host) override;
  void fill_bytes(std::uint8_t value) override;

  std::int32_t v_dim() const { return v_dim_; }
  std::size_t k_part_bytes() const { return k_part_bytes_; }
  std::size_t tile_bytes() const { return tile_bytes_; }
  /// The first byte of tile 0 of block 0; block b follows at b * block_bytes().
  const std::byte* head_data(int layer, int kv_head) const { return data_ + head_offset(layer, kv_head); }
  /// Bytes of one block of one head.
  std::size_t block_bytes() const { return block_bytes_; }

  /// Stores one token's key, f32 [head_dim], and value, f32 [KvShape::v_dim], rounded once to the storage's dtype, at `kv_index` =
  /// block * block_len + offset. Without values, `value` is the key.
  void write_token(int layer, int kv_head, std::int64_t kv_index, const float* key, const float* value);

 private:
  CpuKvStorage(const KvShape& shape, std::byte* data, std::size_t size_bytes);

  std::size_t head_offset(int layer, int kv_head) const {
    return (static_cast<std::size_t>(layer) * static_cast<std::size_t>(shape().n_kv_heads) +
            static_cast<std::size_t>(kv_head)) *
           static_cast<std::size_t>(shape().n_blocks) * block_bytes_;
  }
  std::size_t block_offset(int layer, int kv_head, BlockId block) const {
    return head_offset(layer, kv_head) + static_cast<std::size_t>(block.value) * block_bytes_;
  }
  void check_block(BlockId block) const;

  std::int32_t v_dim_;
  std::size_t k_part_bytes_;
  std::size_t tile_bytes_;
  std::size_t block_bytes_;
  std::byte* data_;
  std::size_t size_bytes_;
};

}  // namespace baton::cpu
