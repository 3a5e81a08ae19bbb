/// Recurrent states in host memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/result.h"
#include "kernels/batch.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pages.h"
#include "kernels/state_storage.h"

namespace baton::cpu {

/// [layer][slot]{f32 [conv_len][n_channels], matrix_dtype [head][key_dim][value_dim]}: a slot of a layer is a piece of the canonical
/// form. Thread: engine only; operations may use different heads and channels of a slot and of kept rows in several threads.
class CpuStateStorage final : public StateStorage {
 public:
  /// Errors: as Backend::make_state_storage.
  static Result<std::unique_ptr<CpuStateStorage>> make(const StateShape& shape) {
    const auto is_dim = [&](std::int32_t n) { return shape.n_heads == 0 || (n > 0 && n <= kMaxStateDim && n % 16 == 0); };
    if (!is_dim(shape.key_dim) || !is_dim(shape.value_dim) || shape.n_channels % 16 != 0 || shape.conv_len < 1 ||
        shape.conv_len >= kMaxConvTaps)
      return fail(
          ErrorCode::unsupported,
          fmt::format("recurrent layers with heads of {} x {}, {} channels and a convolution of {} tokens: heads must be "
                      "multiples of 16 and at most {}, channels a multiple of 16, convolutions of 2 to {} tokens",
                      shape.key_dim, shape.value_dim, shape.n_channels, shape.conv_len + 1, kMaxStateDim, kMaxConvTaps));
    check(shape.matrix_dtype == DType::f32 || shape.matrix_dtype == DType::bf16, "StateStorage: matrices of another type");
    BATON_TRY(Buffer memory, allocate_pages(static_cast<std::size_t>(shape.storage_bytes())));
    return std::unique_ptr<CpuStateStorage>(new CpuStateStorage(shape, std::move(memory)));
  }

  void export_slot(std::int32_t slot, TensorView out, int first_layer) const override {
    const int n_layers = layers_of(out, first_layer);
    for (int i = 0; i < n_layers; ++i)
      std::memcpy(out.data + static_cast<std::size_t>(i) * bytes_of_layer(), conv(first_layer + i, slot), bytes_of_layer());
  }
  void import_slot(std::int32_t slot, ConstTensorView in, int first_layer) override {
    const int n_layers = layers_of(in, first_layer);
    for (int i = 0; i < n_layers; ++i)
      std::memcpy(conv(first_layer + i, slot), in.data + static_cast<std::size_t>(i) * bytes_of_layer(), bytes_of_layer());
  }
  void save_slot(std::int32_t slot, std::byte* host) const override {
    for (int layer = 0; layer < shape().n_layers; ++layer, host += bytes_of_layer())
      std::memcpy(host, conv(layer, slot), bytes_of_layer());
  }
  void load_slot(std::int32_t slot, const std::byte* host) override {
    for (int layer = 0; layer < shape().n_layers; ++layer, host += bytes_of_layer())
      std::memcpy(conv(layer, slot), host, bytes_of_layer());
  }
  void fill_bytes(std::uint8_t value) override { std::memset(memory_.data(), value, memory_.size_bytes()); }

  /// The last inputs of a slot's convolution, [conv_len][n_channels].
  float* conv(int layer, std::int32_t slot) const {
    check(slot >= 0 && slot < shape().n_slots, "StateStorage: the slot does not exist");
    return reinterpret_cast<float*>(memory_.data() +
                                    static_cast<std::size_t>(std::int64_t{layer} * shape().n_slots + slot) * bytes_of_layer());
  }
  /// The matrix of a head, [key_dim, value_dim].
  TensorView matrix(int layer, std::int32_t slot, std::int64_t head) const {
    const std::size_t n_bytes =
        static_cast<std::size_t>(n_of_matrix()) * static_cast<std::size_t>(size_bytes(shape().matrix_dtype));
    std::byte* const first = reinterpret_cast<std::byte*>(conv(layer, slot) + shape().n_conv());
    return {first + static_cast<std::size_t>(head) * n_bytes, shape().matrix_dtype, {shape().key_dim, shape().value_dim}};
  }
  /// A kept row, [n_kept].
  float* kept(int layer, std::int32_t row) const {
    check(row >= 0 && row < shape().n_kept_rows, "StateStorage: the kept row does not exist");
    return reinterpret_cast<float*>(memory_.data() + static_cast<std::size_t>(shape().n_slots * shape().slot_bytes())) +
           (std::int64_t{layer} * shape().n_kept_rows + row) * shape().n_kept();
  }
  /// What a kept row has of the convolution's output, in the type `dtype`.
  TensorView kept_output(int layer, std::int32_t row, DType dtype) const {
    return {reinterpret_cast<std::byte*>(kept(layer, row) + shape().kept_output()), dtype, {shape().n_channels}};
  }
  /// The matrix of a head in f32, after it was made what the run begins with: the one that the run writes or, if that is not f32, a
  /// copy in `copy`, which end_run stores.
  float* begin_run(int layer, const StateRun& run, std::int64_t head, std::vector<float>& copy) const {
    const TensorView written = matrix(layer, run.write_slot, head);
    float* state = reinterpret_cast<float*>(written.data);
    if (!has_f32()) {
      copy.resize(static_cast<std::size_t>(n_of_matrix()));
      state = copy.data();
    }
    if (run.read_slot == StateRun::kZeroState)
      std::fill_n(state, n_of_matrix(), 0.0f);
    else if (!has_f32() || run.read_slot != run.write_slot)
      load_f32(matrix(layer, run.read_slot, head), 0, n_of_matrix(), state);
    return state;
  }
  void end_run(int layer, const StateRun& run, std::int64_t head, const float* state) const {
    if (!has_f32()) store_f32(state, n_of_matrix(), matrix(layer, run.write_slot, head), 0);
  }

 private:
  CpuStateStorage(const StateShape& shape, Buffer memory) : StateStorage(shape), memory_(std::move(memory)) {}
  std::size_t bytes_of_layer() const { return static_cast<std::size_t>(shape().layer_bytes()); }
  bool has_f32() const { return shape().matrix_dtype == DType::f32; }
  std::int64_t n_of_matrix() const { return std::int64_t{shape().key_dim} * shape().value_dim; }

  Buffer memory_;
};

}  // namespace baton::cpu
