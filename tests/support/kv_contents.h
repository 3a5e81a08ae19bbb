/// The contents of one layer of a KV storage on the host: a test sets them once and copies them to the storage of any
/// backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "core/check.h"
#include "core/dtype.h"
#include "kernels/kv_storage.h"

namespace baton {

/// Blocks in the canonical form of a single layer. Elements that were never set are 0xff, which is NaN in each dtype. Values that
/// are the beginnings of keys (KvShape::latent_dim) can be read, but not set.
class KvContents {
 public:
  explicit KvContents(const KvShape& shape)
      : shape_(shape),
        bytes_(static_cast<std::size_t>(layer_bytes()) * static_cast<std::size_t>(shape.n_blocks), std::byte{0xff}) {}

  const KvShape& shape() const { return shape_; }
  void clear() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff}); }
  /// The scale of stored values. Must be set before values are stored.
  void set_scales(float k_scale, float v_scale) {
    if (shape_.dtype != DType::f8_e4m3) return;  // other dtypes store the value itself
    shape_.k_scales = {k_scale};
    shape_.v_scales = {v_scale};
  }

  /// What can be set: for each part whether it is values.
  std::span<const bool> stored_parts() const {
    static constexpr bool kParts[] = {false, true};
    return std::span(kParts).first(shape_.has_values() ? 2 : 1);
  }

  /// Stores `number`, rounded to the dtype (f8_e4m3: divided by the scale first).
  void set(bool is_value, int kv_head, std::int32_t block, int offset, int dim, float number) {
    check(shape_.has_values() || !is_value, "KvContents: a value that is part of its key");
    visit_stored_float(shape_.dtype, [&]<class T>(T) {
      const T stored(shape_.dtype == DType::f8_e4m3 ? number / (is_value ? shape_.v_scale(0) : shape_.k_scale(0)) : number);
      std::memcpy(&bytes_[index(is_value, kv_head, block, offset, dim) * sizeof(T)], &stored, sizeof(T));
    });
  }
  /// The value that attention reads there.
  double get(bool is_value, int kv_head, std::int32_t block, int offset, int dim) const {
    return visit_stored_float(shape_.dtype, [&]<class T>(T) {
      T stored;
      std::memcpy(&stored, &bytes_[index(is_value, kv_head, block, offset, dim) * sizeof(T)], sizeof(T));
      const float scale = shape_.dtype == DType::f8_e4m3 ? (is_value ? shape_.v_scale(0) : shape_.k_scale(0)) : 1.0f;
      return static_cast<double>(static_cast<float>(stored)) * static_cast<double>(scale);
    });
  }

  /// Moves every block to its number in another numbering.
  static std::vector<std::int32_t> same_numbers(std::int32_t n_blocks) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(n_blocks));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  /// Writes block b as block numbers[b] of layer `layer`; other layers of these blocks are NaN.
  void write_to(KvStorage& kv, int layer, const std::vector<std::int32_t>& numbers) const {
    const auto size = static_cast<std::size_t>(layer_bytes());
    std::vector<std::byte> whole(static_cast<std::size_t>(kv.shape().block_bytes()), std::byte{0xff});
    for (std::size_t block = 0; block < numbers.size(); ++block) {
      const std::byte* from = &bytes_[block * size];
      if (std::all_of(from, from + size, [](std::byte b) { return b == std::byte{0xff}; })) continue;
      std::copy_n(from, size, whole.begin() + static_cast<std::ptrdiff_t>(size) * layer);
      kv.import_block(BlockId{numbers[block]}, {whole.data(), DType::u8, {static_cast<std::int64_t>(whole.size())}});
    }
  }

 private:
  std::int64_t layer_bytes() const { return shape_.token_bytes() * shape_.block_len; }
  std::size_t index(bool is_value, int kv_head, std::int32_t block, int offset, int dim) const {
    const std::int64_t part = shape_.has_values() ? static_cast<std::int64_t>(block) * 2 + is_value : block;
    const std::int64_t head = part * shape_.n_kv_heads + kv_head;
    return static_cast<std::size_t>((head * shape_.block_len + offset) * shape_.head_dim + dim);
  }

  KvShape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace baton
