/// Keys and values in the memory of a CUDA device, in the layout of kv_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/kv_storage.h"

namespace baton::cuda {

/// One allocation, [layer][block][layout()], every tile aligned to 1024 bytes. It uses the device's stream and is
/// shorter-lived than the device. Thread: engine only.
class CudaKvStorage final : public KvStorage {
 public:
  /// Fails for a dtype other than bf16, f16 and f8_e4m3, a head_dim that is odd or over 256 and scales that no number
  /// can be divided by (unsupported), and where the device has not the memory (out_of_memory, with what was asked and
  /// what is free).
  static Result<std::unique_ptr<CudaKvStorage>> make(const Device& device, const KvShape& shape);
  ~CudaKvStorage() override;

  /// On the stream: returns before it is done. The lists may go at once.
  void copy_blocks(std::span<const BlockId> from, std::span<const BlockId> to) override;
  /// Both wait for the stream.
  void export_block(BlockId block, TensorView out) const override;
  void import_block(BlockId block, ConstTensorView in) override;
  /// On the stream.
  void fill_bytes(std::uint8_t value) override;

  KvLayout layout() const { return layout_; }
  std::int64_t layer_bytes() const { return shape().n_blocks * layout_.block_bytes(); }
  /// Device memory: tile_offset() of layout() counts from here.
  std::byte* layer_data(int layer) { return data_ + layer * layer_bytes(); }
  const std::byte* layer_data(int layer) const { return data_ + layer * layer_bytes(); }

 private:
  CudaKvStorage(const Device& device, const KvShape& shape, std::byte* allocated);

  void check_block(BlockId block) const;

  const Device& device_;
  KvLayout layout_;
  std::byte* allocated_;  ///< what cudaMalloc gave
  std::byte* data_;       ///< its first multiple of 1024
};

}  // namespace baton::cuda
