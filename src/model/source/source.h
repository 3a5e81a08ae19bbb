/// Where a model's weights come from.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/tensor.h"

namespace baton {

/// A tensor that a source must hold.
struct ExpectedTensor {
  enum class Kind : std::uint8_t { matrix, norm, bias };
  std::string name;
  Shape shape;
  Kind kind = Kind::matrix;
};

/// Gives the tensors of one model. Thread: the loading one.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Writes a tensor's elements, converted to the dtype of `out` (a float type), which has the tensor's shape. Each
  /// tensor is read once.
  virtual Result<void> read(const ExpectedTensor& tensor, TensorView out) = 0;
};

}  // namespace baton
