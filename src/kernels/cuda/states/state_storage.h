/// Recurrent states in the memory of a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/result.h"
#include "kernels/cuda/device/device.h"
#include "kernels/state_storage.h"

namespace baton::cuda {

/// The kept rows of a layer, as kernels are given them: f32 numbers from one row to the next, and to the parts of a row.
struct KeptRowsOfLayer {
  float* first;
  std::int64_t stride;
  std::int64_t output;
  std::int64_t gates;
};

/// [layer][slot]{[conv_len][n_channels], [head][key_dim][value_dim]}: a slot of a layer is a piece of the canonical form. It uses the
/// device's stream; the device must outlive it. Thread: engine only.
class CudaStateStorage final : public StateStorage {
 public:
  /// Errors: as Backend::make_state_storage.
  static Result<std::unique_ptr<CudaStateStorage>> make(const Device& device, const StateShape& shape);
  ~CudaStateStorage() override;

  /// Both wait for the stream.
  void export_slot(std::int32_t slot, TensorView out, int first_layer) const override;
  void import_slot(std::int32_t slot, ConstTensorView in, int first_layer) override;
  /// Enqueued on the stream.
  void save_slot(std::int32_t slot, std::byte* host) const override;
  void load_slot(std::int32_t slot, const std::byte* host) override;
  /// Enqueued on the stream.
  void fill_bytes(std::uint8_t value) override;

  /// f32 numbers from one slot of a layer to the next.
  std::int64_t slot_stride() const { return shape().n_conv() + shape().n_matrices(); }
  /// Device addresses in slot 0 of a layer: the last inputs of its convolution, and the matrix of its first head.
  float* conv(int layer) const { return data_ + layer * shape().n_slots * slot_stride(); }
  float* matrices(int layer) const { return conv(layer) + shape().n_conv(); }
  KeptRowsOfLayer kept(int layer) const {
    return {conv(shape().n_layers) + std::int64_t{layer} * shape().n_kept_rows * shape().n_kept(), shape().n_kept(),
            shape().kept_output(), shape().kept_gates()};
  }

 private:
  CudaStateStorage(const Device& device, const StateShape& shape, float* data)
      : StateStorage(shape), device_(device), data_(data) {}
  /// Calls body(address of the slot in a layer, byte of the host's memory, bytes of a layer) for each layer.
  template <class Body>
  void for_layers(std::int32_t slot, int first_layer, int n_layers, Body&& body) const;
  void copy_out(std::int32_t slot, int first_layer, int n_layers, std::byte* host) const;
  void copy_in(std::int32_t slot, int first_layer, int n_layers, const std::byte* host);

  const Device& device_;
  float* data_;
};

}  // namespace baton::cuda
