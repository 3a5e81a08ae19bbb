/// What a backend in host memory offers beside Backend: it packs a matrix while its values are read, a few rows at a time, so
/// that they are never in memory twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/stored_matrix.h"

namespace baton {

/// Writes rows [begin, end) of StoredMatrix::values. Several threads call it at once, for different rows.
using ReadValues = std::function<Result<void>(std::int64_t begin, std::int64_t end, std::byte* to)>;

class RowPacking {
 public:
  /// The same as Backend::pack_matrix for a matrix that is not dense and whose values have a shape and no data. Calls `read`
  /// once for each row. Errors: those of `read` and of pack_matrix.
  virtual Result<std::unique_ptr<PackedMatrix>> pack_rows(const StoredMatrix& weight, const ReadValues& read, DType dtype,
                                                          std::string_view name) = 0;

 protected:
  ~RowPacking() = default;
};

}  // namespace baton
