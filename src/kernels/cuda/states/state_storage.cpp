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
  if (shape.matrix_dtype != DType::f32)
    return fail(ErrorCode::unsupported,
                fmt::format("recurrent states are float32 on CUDA, not {}", to_string(shape.matrix_dtype)));
  check(shape.n_layers >= 1 && shape.n_slots >= 1, "CudaStateStorage: an empty shape");
  BATON_TRY(std::byte * data, device_memory(static_cast<std::size_t>(shape.storage_bytes()), "recurrent states"));
  return std::unique_ptr<CudaStateStorage>(new CudaStateStorage(device, shape, reinterpret_cast<float*>(data)));
}

// A failed device has already been reported where it was used, so the result is ignored.
CudaStateStorage::~CudaStateStorage() { static_cast<void>(cudaFree(data_)); }

template <class Body>
void CudaStateStorage::for_layers(std::int32_t slot, Body&& body) const {
  check(slot >= 0 && slot < shape().n_slots, "StateStorage: the slot does not exist");
  const std::size_t n_bytes = static_cast<std::size_t>(slot_stride()) * sizeof(float);
  for (int layer = 0; layer < shape().n_layers; ++layer)
    body(conv(layer) + slot * slot_stride(), static_cast<std::size_t>(layer) * n_bytes, n_bytes);
  check_cuda(cudaStreamSynchronize(device_.stream), "copy of a recurrent state");
}

void CudaStateStorage::export_slot(std::int32_t slot, TensorView out) const {
  check(static_cast<std::int64_t>(out.size_bytes()) == shape().slot_bytes(), "export_slot: out has another size");
  for_layers(slot, [&](const float* from, std::size_t byte, std::size_t n_bytes) {
    check_cuda(cudaMemcpyAsync(out.data + byte, from, n_bytes, cudaMemcpyDeviceToHost, device_.stream),
               "copy of a recurrent state to the host");
  });
}

void CudaStateStorage::import_slot(std::int32_t slot, ConstTensorView in) {
  check(static_cast<std::int64_t>(in.size_bytes()) == shape().slot_bytes(), "import_slot: in has another size");
  for_layers(slot, [&](float* to, std::size_t byte, std::size_t n_bytes) {
    check_cuda(cudaMemcpyAsync(to, in.data + byte, n_bytes, cudaMemcpyHostToDevice, device_.stream),
               "copy of a recurrent state to the device");
  });
}

void CudaStateStorage::fill_bytes(std::uint8_t value) {
  check_cuda(cudaMemsetAsync(data_, value, static_cast<std::size_t>(shape().storage_bytes()), device_.stream),
             "filling recurrent states");
}

}  // namespace baton::cuda
