/// Writes a checkpoint whose matrices are rounded: what `--quantization` does at load, once and for other engines, too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "load/weight_rounding.h"
#include "model/source/rounding.h"

namespace baton {

struct QuantizeRequest {
  std::filesystem::path model;  ///< the folder of a dense checkpoint
  std::filesystem::path out;    ///< the folder to make; its parent exists
  WeightRounding rounding;      ///< is on
  int n_threads = 0;            ///< 0: as many as affinity and quota allow
  bool needs_group = false;     ///< the group was asked for: some matrix must have it
};

/// What rounding did to a matrix.
struct QuantizedMatrix {
  std::string name;
  std::int64_t n = 0, k = 0;
  double squares = 0;        ///< sum of the squares of its weights
  double error_squares = 0;  ///< of what they were changed by

  /// Root mean square of the change, divided by that of the weights.
  double relative_error() const;
};

struct QuantizeReport {
  std::vector<QuantizedMatrix> matrices;  ///< in the order of the files
  std::int64_t bytes_before = 0;          ///< of all tensors
  std::int64_t bytes_after = 0;           ///< of the files with tensors
  ScaleCounts n_by_columns;

  /// Of all matrices together.
  double relative_error() const;
};

/// Hears how many bytes of the checkpoint's tensors have been read, of how many. False stops.
using QuantizeProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

/// Writes to `out`.part, and renames that to `out` when all is on the disk; if that fails, nothing is left. The shards are the
/// checkpoint's, in the format compressed-tensors; other files but weights are copied. A matrix is read some rows at a time. Errors:
/// invalid_request: `out` or `out`.part exists or `out` is inside `model`, or no row can have the group; invalid_data: a number of
/// the model is not finite; unsupported: the checkpoint is quantised already; unavailable: stopped; those of reading the checkpoint;
/// io, also if there is no room.
Result<QuantizeReport> quantize_model(const QuantizeRequest& request, const QuantizeProgress& progress);

}  // namespace baton
