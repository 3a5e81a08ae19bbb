/// The memory of keys and values: one object for each rank and layer group, made by the backend. The KV cache above it
/// uses block numbers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/ids.h"
#include "core/tensor.h"

namespace baton {

struct KvShape {
  std::int32_t n_layers = 0;
  std::int32_t n_blocks = 0;
  std::int32_t block_len = 16;  ///< tokens of a block; a power of two from 16 to 256
  std::int32_t n_kv_heads = 0;  ///< of this rank
  std::int32_t head_dim = 0;    ///< elements of a key and, without a latent_dim, of a value
  DType dtype = DType::bf16;
  /// One scale for each layer: the key is the stored f8_e4m3 key times its layer's scale, and the same holds for
  /// values. Empty: 1 in every layer, as other dtypes require.
  std::vector<float> k_scales = {};
  std::vector<float> v_scales = {};
  /// Over 0: values are not stored. A value is the first latent_dim elements of its key (multi-head latent attention); there is
  /// one KV head and no scale.
  std::int32_t latent_dim = 0;

  bool has_values() const { return latent_dim == 0; }
  /// Elements of a value.
  std::int32_t v_dim() const { return has_values() ? head_dim : latent_dim; }
  float k_scale(int layer) const { return k_scales.empty() ? 1 : k_scales.at(static_cast<std::size_t>(layer)); }
  float v_scale(int layer) const { return v_scales.empty() ? 1 : v_scales.at(static_cast<std::size_t>(layer)); }
  /// The dtype of the queries of attention: bf16 over f8_e4m3, otherwise the storage's dtype. Nothing is gained by wider
  /// ones.
  DType query_dtype() const { return dtype == DType::f8_e4m3 ? DType::bf16 : dtype; }
  /// Bytes of keys and values of one token in one layer, as they are stored.
  std::int64_t token_bytes() const {
    const std::int64_t n_parts = has_values() ? 2 : 1;
    return n_parts * n_kv_heads * head_dim * static_cast<std::int64_t>(size_bytes(dtype));
  }
  /// Bytes of one block over all layers.
  std::int64_t block_bytes() const { return token_bytes() * block_len * n_layers; }
};

/// Keys and values of `n_blocks` blocks. The layout is the backend's own; the canonical form is
/// [layer][K, then V if there are values][kv head][token][head_dim] in the storage's dtype.
///
/// Memory is not cleared: a position that was never written may hold NaN, so readers mask. Thread: engine only.
class KvStorage {
 public:
  virtual ~KvStorage() = default;

  const KvShape& shape() const { return shape_; }

  /// Copies block `from[i]` to block `to[i]` in every layer. No block may be in both lists.
  virtual void copy_blocks(std::span<const BlockId> from, std::span<const BlockId> to) = 0;
  /// Writes the canonical form of one block to host memory `out`, u8 [block_bytes].
  virtual void export_block(BlockId block, TensorView out) const = 0;
  /// The inverse of export_block.
  virtual void import_block(BlockId block, ConstTensorView in) = 0;
  /// Copies of one block to and from host memory, in the storage's own layout: Backend::kv_block_bytes bytes, which only
  /// a storage of the same shape in the same process can read. They are enqueued after the operations so far, and
  /// `host` (Backend::allocate_host) must stay until they have run. Nothing waits for them.
  virtual void save_block(BlockId block, std::byte* host) const = 0;
  virtual void load_block(BlockId block, const std::byte* host) = 0;
  /// Sets every byte of the storage to `value`, for tests (0xff gives NaN in each dtype).
  virtual void fill_bytes(std::uint8_t value) = 0;

 protected:
  explicit KvStorage(const KvShape& shape) : shape_(shape) {}

 private:
  KvShape shape_;
};

}  // namespace baton
