/// The memory of recurrent states: one object for each rank, made by the backend. What a sequence has computed so far is in its
/// recurrent layers a state of fixed size, where attention layers have keys and values of every token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/check.h"
#include "core/tensor.h"

namespace baton {

/// The states of all recurrent layers of a model, which are alike. A slot holds those of one sequence: for each layer the last
/// inputs of its short convolution, and a matrix for each head, if there are heads. A kept row holds what all layers need to apply
/// one draft to a state (StateRun): the input of the convolution and, if there are heads, its output and their gates.
struct StateShape {
  std::int32_t n_layers = 0;
  std::int32_t n_slots = 0;
  std::int32_t n_channels = 0;  ///< of the convolution; a multiple of 16
  std::int32_t conv_len = 0;    ///< inputs that are kept of each channel: the kernel's length - 1; from 1 to kMaxConvTaps - 1
  std::int32_t n_heads = 0;     ///< matrices of a layer; may be 0
  std::int32_t key_dim = 0;     ///< rows of a matrix; a multiple of 16 and at most kMaxStateDim
  std::int32_t value_dim = 0;   ///< columns of a matrix; the same
  /// f32, or bf16: then matrices are rounded to nearest even after each row, whose output is that of the state before it is rounded;
  /// in chunks of rows (kStateChunk), where a state is written.
  DType matrix_dtype = DType::f32;
  std::int32_t n_kept_rows = 0;

  /// Numbers of one slot in one layer: inputs of the convolution in f32, and matrices.
  std::int64_t n_conv() const { return std::int64_t{conv_len} * n_channels; }
  std::int64_t n_matrices() const { return std::int64_t{n_heads} * key_dim * value_dim; }
  /// Bytes of one slot in one layer, and over all layers.
  std::int64_t layer_bytes() const {
    return n_conv() * 4 + n_matrices() * static_cast<std::int64_t>(baton::size_bytes(matrix_dtype));
  }
  std::int64_t slot_bytes() const { return layer_bytes() * n_layers; }
  /// Where a kept row of a layer has the convolution's output (at f32 number n_channels, in the output's own type) and its gates (f32,
  /// at most two for each head), and how many f32 numbers it takes.
  std::int64_t kept_output() const { return n_channels; }
  std::int64_t kept_gates() const { return std::int64_t{n_channels} * (n_heads > 0 ? 2 : 1); }
  std::int64_t n_kept() const { return kept_gates() + (2 * std::int64_t{n_heads} + 15) / 16 * 16; }
  /// Bytes of one kept row over all layers, and of the whole storage.
  std::int64_t kept_row_bytes() const { return n_kept() * 4 * n_layers; }
  std::int64_t storage_bytes() const { return n_slots * slot_bytes() + n_kept_rows * kept_row_bytes(); }
  bool operator==(const StateShape&) const = default;
};

/// The largest key_dim and value_dim, and the longest kernel of a short convolution, in tokens.
inline constexpr std::int32_t kMaxStateDim = 256;
inline constexpr std::int32_t kMaxConvTaps = 8;

/// The layout is the backend's own, with kept rows, f32 [layer][row][n_kept], after the slots; the canonical form of a slot is
/// [layer]{f32 [conv_len][n_channels], oldest input first; matrix_dtype [head][key_dim][value_dim]}.
///
/// Memory is not cleared: a slot that was never written may hold NaN (StateRun says which states begin at zero). Thread: engine
/// only.
class StateStorage {
 public:
  virtual ~StateStorage() = default;

  const StateShape& shape() const { return shape_; }

  /// Writes the canonical form of a slot, from `first_layer` on as many layers as `out` holds, to host memory `out`, some
  /// layer_bytes long, after the operations so far.
  virtual void export_slot(std::int32_t slot, TensorView out, int first_layer) const = 0;
  /// The inverse of export_slot.
  virtual void import_slot(std::int32_t slot, ConstTensorView in, int first_layer) = 0;
  /// Copies of one slot to and from host memory, slot_bytes, which only a storage of the same shape in the same process can read.
  /// They are enqueued after the operations so far, and `host` (Backend::allocate_host) must stay until they have run. Nothing
  /// waits for them.
  virtual void save_slot(std::int32_t slot, std::byte* host) const = 0;
  virtual void load_slot(std::int32_t slot, const std::byte* host) = 0;
  /// Sets every byte of the storage to `value`, for tests (0xff gives NaN).
  virtual void fill_bytes(std::uint8_t value) = 0;

 protected:
  explicit StateStorage(const StateShape& shape) : shape_(shape) {}
  /// How many layers from `first_layer` on a tensor of export_slot or import_slot holds.
  int layers_of(const ConstTensorView& host, int first_layer) const {
    const auto n_bytes = static_cast<std::int64_t>(host.size_bytes());
    const std::int64_t n_layers = n_bytes / shape_.layer_bytes();
    check(n_bytes % shape_.layer_bytes() == 0 && first_layer >= 0 && first_layer + n_layers <= shape_.n_layers,
          "StateStorage: the host's memory is not that of layers of a slot");
    return static_cast<int>(n_layers);
  }

 private:
  StateShape shape_;
};

}  // namespace baton
