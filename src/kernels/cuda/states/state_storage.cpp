/// Recurrent states on a CUDA device: memory, and copies to and from the canonical form.
#include "kernels/cuda/states/state_storage.h"

#include <fmt/format.h>

#include "kernels/cuda/device/device_memory.h"

namespace baton::cuda {

Result<std::unique_ptr<CudaStateStorage>> CudaStateStorage::make(const Device& device, const StateShape& shape) {
  const auto is_dim = [&](std::int32_t n) { return shape.n_heads == 0 || (n > 0 && n <= kMaxStateDim && n % 16 == 0); };
  if (!is_dim(shape.key_dim) || !is_dim(shape.value_dim) || shape.n_channels % 16 != 0 || shape.conv_len < 1 ||
      shape.conv_len >= kMaxConvTaps)
    return fail(ErrorCode::unsupported,
                fmt::format("recurrent layers with heads of {} x {}, {} channels and a convolution of {} tokens: heads must be "
                            "multiples of 16 and at most {}, channels a multiple of 16, convolutions of 2 to {} tokens",
                            shape.key_dim, shape.value_dim, shape.n_channels, shape.conv_len + 1, kMaxStateDim, kMaxConvTaps));
  check(shape.matrix_dtype == DType::f32 || shape.matrix_dtype == DType::bf16, "StateStorage: matrices of another type");
  check(shape.n_layers >= 1 && shape.n_slots >= 1, "CudaStateStorage: an empty shape");
  BATON_TRY(std::byte * data, device_memory(static_cast<std::size_t>(shape.storage_bytes()), "recurrent states"));
  return std::unique_ptr<CudaStateStorage>(new CudaStateStorage(device, shape, reinterpret_cast<float*>(data)));
}

// A failed device has already been reported where it was used, so the result is ignored.
CudaStateStorage::~CudaStateStorage() { static_cast<void>(cudaFree(data_)); }

template <class Body>
void CudaStateStorage::for_layers(std::int32_t slot, int first_layer, int n_layers, Body&& body) const {
  check(slot >= 0 && slot < shape().n_slots, "StateStorage: the slot does not exist");
  const auto n_bytes = static_cast<std::size_t>(shape().layer_bytes());
  for (int i = 0; i < n_layers; ++i)
    body(conv(first_layer + i) + slot * slot_stride(), static_cast<std::size_t>(i) * n_bytes, n_bytes);
}

void CudaStateStorage::copy_out(std::int32_t slot, int first_layer, int n_layers, std::byte* host) const {
  for_layers(slot, first_layer, n_layers, [&](const float* from, std::size_t byte, std::size_t n_bytes) {
    check_cuda(cudaMemcpyAsync(host + byte, from, n_bytes, cudaMemcpyDeviceToHost, device_.stream),
               "copy of a recurrent state to the host");
  });
}

void CudaStateStorage::copy_in(std::int32_t slot, int first_layer, int n_layers, const std::byte* host) {
  for_layers(slot, first_layer, n_layers, [&](float* to, std::size_t byte, std::size_t n_bytes) {
    check_cuda(cudaMemcpyAsync(to, host + byte, n_bytes, cudaMemcpyHostToDevice, device_.stream),
               "copy of a recurrent state to the device");
  });
}

void CudaStateStorage::export_slot(std::int32_t slot, TensorView out, int first_layer) const {
  copy_out(slot, first_layer, layers_of(out, first_layer), out.data);
  check_cuda(cudaStreamSynchronize(device_.stream), "copy of a recurrent state to the host");
}

void CudaStateStorage::import_slot(std::int32_t slot, ConstTensorView in, int first_layer) {
  copy_in(slot, first_layer, layers_of(in, first_layer), in.data);
  check_cuda(cudaStreamSynchronize(device_.stream), "copy of a recurrent state to the device");
}

void CudaStateStorage::save_slot(std::int32_t slot, std::byte* host) const { copy_out(slot, 0, shape().n_layers, host); }
void CudaStateStorage::load_slot(std::int32_t slot, const std::byte* host) { copy_in(slot, 0, shape().n_layers, host); }

void CudaStateStorage::fill_bytes(std::uint8_t value) {
  check_cuda(cudaMemsetAsync(data_, value, static_cast<std::size_t>(shape().storage_bytes()), device_.stream),
             "filling recurrent states");
}

}  // namespace baton::cuda
