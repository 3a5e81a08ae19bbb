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

/// The matrices of a layer, as kernels are given them: that of slot 0's first head, and numbers from one slot to the next.
struct MatricesOfLayer {
  void* first;
  DType dtype;  ///< f32 or bf16
  std::int64_t slot_stride;
};

/// [layer][slot]{f32 [conv_len][n_channels], matrix_dtype [head][key_dim][value_dim]}: a slot of a layer is a piece of the canonical
/// form. It uses the device's stream; the device must outlive it. Thread: engine only.
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

  /// f32 numbers from one slot of a layer to the next. A slot's bytes are a multiple of 64.
  std::int64_t slot_stride() const { return shape().layer_bytes() / 4; }
  /// The last inputs of the convolution in slot 0 of a layer.
  float* conv(int layer) const { return data_ + layer * shape().n_slots * slot_stride(); }
  MatricesOfLayer matrices(int layer) const {
    const DType dtype = shape().matrix_dtype;
    return {conv(layer) + shape().n_conv(), dtype, shape().layer_bytes() / static_cast<std::int64_t>(baton::size_bytes(dtype))};
  }
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
