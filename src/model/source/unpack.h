/// Unpacks the matrices of each vendor's layout into the internal form of their width.
#pragma once

#include "core/parallel.h"
#include "core/result.h"
#include "model/source/stored_layout.h"

namespace baton {

/// Writes the rows and columns of `part` to `out`; values and scales only where `out` has memory for them. Errors
/// (invalid_data) name the tensor: a number that is NaN; unsupported: columns that cannot be cut.
Result<void> unpack(const Parallel& parallel, const StoredLayout& stored, const TensorPart& part, const StoredRows& out);

}  // namespace baton
