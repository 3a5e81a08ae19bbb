/// The source of a model's weights.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/tensor.h"
#include "kernels/stored_matrix.h"

namespace baton {

/// Elements that a thread fills or converts at least.
inline constexpr std::int64_t kElementsPerTask = 1 << 16;

/// A tensor that a source must hold.
struct ExpectedTensor {
  enum class Kind : std::uint8_t { matrix, norm, bias };
  std::string name;
  Shape shape;
  Kind kind = Kind::matrix;
  std::int32_t interleaved_dim = 0;  ///< leading rows of each head that are stored as RopeSpec::is_interleaved says; 0: none
  std::int32_t head_dim = 0;         ///< rows of a head, if some are
  /// Where one tensor holds this matrix, or vector, of all experts: how many they are, and whose this one is.
  std::int32_t n_experts = 0;
  std::int32_t expert = 0;
  bool is_transposed = false;  ///< such a tensor is [n_experts, k, n] if it is dense, instead of [n_experts, n, k]
  std::int32_t n_taps = 0;     ///< over 0: this vector is a tensor [n / n_taps, 1, n_taps], a convolution of each channel

  /// Of the tensor, if it is dense.
  Shape dense_shape() const {
    if (n_taps > 0) return {shape[0] / n_taps, 1, n_taps};
    if (n_experts == 0) return shape;
    if (shape.rank() == 1) return {n_experts, shape[0]};
    return is_transposed ? Shape{n_experts, shape[1], shape[0]} : Shape{n_experts, shape[0], shape[1]};
  }
};

/// Neighbouring rows or columns: [begin, end).
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

/// What a rank holds of a tensor [n] or [n, k].
struct TensorPart {
  ExpectedTensor tensor;
  IndexRange rows;
  IndexRange columns;            ///< of a matrix
  std::int64_t n_zero_rows = 0;  ///< rows of zeros after them, which the checkpoint does not have

  /// Of the part, with its rows of zeros.
  Shape shape() const {
    Shape made{rows.size() + n_zero_rows};
    if (tensor.shape.rank() == 2) made.append(columns.size());
    return made;
  }
};

/// How a source has a matrix, beside its size: see StoredMatrix, here of the whole tensor.
struct MatrixForm {
  WeightScheme scheme = WeightScheme::dense;
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 1;
  DType scale_dtype = DType::f32;
  bool has_row_scales = false;
  bool has_zeros = false;
  bool is_permuted = false;
};

/// Memory for the rows and columns of a part of a matrix that is not dense, each as StoredMatrix says. `scale_rows`
/// and
/// `scale_columns` divide those of the source's form, and the part's first row and column are multiples of them.
struct StoredRows {
  WeightScheme scheme = WeightScheme::f8;
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 1;
  TensorView values;
  TensorView scales;
  TensorView row_scales;   ///< or no data
  TensorView zeros;        ///< or no data
  TensorView permutation;  ///< or no data
};

/// Supplies the tensors of one model. Thread: the one that loads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Writes the elements of `part.rows` and `part.columns`, converted to the dtype of `out` (a float dtype). `out` has
  /// the shape of these rows and columns. Each element is read once, or twice where the embeddings are tied.
  virtual Result<void> read(const TensorPart& part, TensorView out) = 0;
  /// Errors: another scheme than the configuration states, or one that is not supported.
  virtual Result<MatrixForm> form_of(const ExpectedTensor&) const { return MatrixForm{}; }
  /// The same as read for a matrix whose form is not dense, without its rows of zeros.
  virtual Result<void> read_stored(const TensorPart&, const StoredRows&) {
    check_failed("WeightSource: its matrices are dense");
  }
};

}  // namespace baton
