/// What a source of weights offers beside WeightSource: values of matrices that are not dense, read by themselves, a few rows
/// at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "core/result.h"
#include "model/source/source.h"

namespace baton {

/// Reads the values of one part of a matrix. Thread: any, several at once.
class ValueReader {
 public:
  virtual ~ValueReader() = default;
  /// Writes the values of `rows` of the tensor, in the part's columns, as StoredMatrix has them. Errors: those of
  /// WeightSource::read_stored.
  virtual Result<void> read(IndexRange rows, std::byte* to) const = 0;
};

class ValueSource {
 public:
  /// For a part that is neither dense nor permuted. Where there is one, read_stored leaves out values that have no data. Lives
  /// as long as the source.
  virtual Result<std::unique_ptr<ValueReader>> value_reader(const TensorPart& part) const = 0;

 protected:
  ~ValueSource() = default;
};

}  // namespace baton
