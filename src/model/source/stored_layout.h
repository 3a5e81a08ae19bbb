/// Finds how a checkpoint stores a matrix: from the tensors that are there, checked against what the configuration
/// states.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/safetensors.h"
#include "model/quantization.h"
#include "model/source/source.h"

namespace baton {

/// Where a value of a matrix [n, k] stands in its tensor.
enum class ValueLayout : std::uint8_t {
  dense,           ///< "weight" [n, k], float
  bytes,           ///< "weight" [n, k], f8_e4m3 or signed 8 bits
  packed_rows,     ///< "weight_packed" [n, k * bits / 32] words, low bits first (compressed-tensors)
  packed_columns,  ///< "qweight" [k * bits / 32, n] words, low bits first (GPTQ)
  awq,             ///< "qweight" [k, n / 8] words of eight outputs in AWQ's order
  half_bytes,  ///< "weight_packed", NVIDIA's "weight" or an expert's "..._blocks" [n, k / 2] bytes, even columns in the low half
};

/// The tensors of a matrix. The views are of the checkpoint and may be unaligned.
struct StoredLayout {
  ValueLayout layout = ValueLayout::dense;
  MatrixForm form;
  std::int64_t n = 0, k = 0;
  const std::byte* values = nullptr;
  std::string_view scales_part;  ///< the last part of their name
  ConstTensorView scales;        ///< a scale for the tensor, [rows of blocks, groups], or [groups, n] of GPTQ and AWQ
  float row_scale = 1;           ///< of each row of f4
  ConstTensorView zeros;         ///< words, or no data: the middle of the range
  ConstTensorView groups;        ///< [k] i32: the group of each column, or no data: in order
  bool adds_one_to_zeros = false;

  bool has_scales_in_columns() const { return layout == ValueLayout::packed_columns || layout == ValueLayout::awq; }
};

/// Whether any tensor of a matrix named `weight` ("....weight", or the name of a tensor of all experts) is there.
bool has_matrix(const Checkpoint& checkpoint, std::string_view weight);

/// The name of a matrix without a last "weight", and the same of a tensor that may belong to a quantised one ("....scales",
/// "....qweight", "..._blocks"), otherwise empty.
std::string_view stem_of_matrix(std::string_view weight);
std::string_view stem_of_part(std::string_view name);

/// Errors name the tensor: not_found, invalid_data (a shape, or another scheme than the configuration states),
/// unsupported.
Result<StoredLayout> find_layout(const Checkpoint& checkpoint, const ExpectedTensor& matrix, const QuantizationSpec& stated);

}  // namespace baton
