/// The source of a model's weights.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/tensor.h"

namespace baton {

/// Elements that a thread fills or converts at least.
inline constexpr std::int64_t kElementsPerTask = 1 << 16;

/// A tensor that a source must hold.
struct ExpectedTensor {
  enum class Kind : std::uint8_t { matrix, norm, bias };
  std::string name;
  Shape shape;
  Kind kind = Kind::matrix;
  std::int32_t interleaved_dim = 0;  ///< rows of heads of this size are stored as RopeSpec::is_interleaved says; 0: not
};

/// Supplies the tensors of one model. Thread: the one that loads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Writes a tensor's elements, converted to the dtype of `out` (a float dtype), which has the tensor's shape. Each
  /// tensor is read once.
  virtual Result<void> read(const ExpectedTensor& tensor, TensorView out) = 0;
};

}  // namespace baton
