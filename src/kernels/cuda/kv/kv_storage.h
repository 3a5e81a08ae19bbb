/// Keys and values in the memory of a CUDA device, in the layout of kv_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/kv/kv_layout.h"
#include "kernels/kv_storage.h"

namespace baton::cuda {

/// One allocation, [layer][block][layout()], with every tile aligned to 1024 bytes. It uses the device's stream; the
/// device must outlive it. Thread: engine only.
class CudaKvStorage final : public KvStorage {
 public:
  /// Errors: unsupported (a dtype other than bf16, f16 and f8_e4m3, an odd head_dim or one over 256, scales that
  /// cannot be divided by), out_of_memory (with the requested and the free size).
  static Result<std::unique_ptr<CudaKvStorage>> make(const Device& device, const KvShape& shape);
  ~CudaKvStorage() override;

  /// Enqueued on the stream. The lists may be freed after the call.
  void copy_blocks(std::span<const BlockId> from, std::span<const BlockId> to) override;
  /// Both wait for the stream.
  void export_block(BlockId block, TensorView out) const override;
  void import_block(BlockId block, ConstTensorView in) override;
  /// Enqueued on the stream, one copy for each layer. The host continues at once if its memory is pinned.
  void save_block(BlockId block, std::byte* host) const override;
  void load_block(BlockId block, const std::byte* host) override;
  /// Enqueued on the stream.
  void fill_bytes(std::uint8_t value) override;

  KvLayout layout() const { return layout_; }
  std::int64_t layer_bytes() const { return shape().n_blocks * layout_.block_bytes(); }
  /// Device address of a layer; add tile_offset() of layout().
  std::byte* layer_data(int layer) { return data_ + layer * layer_bytes(); }
  const std::byte* layer_data(int layer) const { return data_ + layer * layer_bytes(); }

 private:
  CudaKvStorage(const Device& device, const KvShape& shape, std::byte* allocated);

  void check_block(BlockId block) const;

  const Device& device_;
  KvLayout layout_;
  std::byte* allocated_;  ///< the address from cudaMalloc
  std::byte* data_;       ///< the first multiple of 1024 in it
};

}  // namespace baton::cuda
