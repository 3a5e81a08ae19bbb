/// A linear layer on a backend: all multiplications by a model's weights go through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "kernels/backend.h"

namespace baton {

/// What the ranks gather: see all_gather in kernels/ops.h.
struct RankParts {
  TensorView all;  ///< [world size, rows, n]
  TensorView own;  ///< [rows, n], this rank's part of `all`
};

/// Rows that matmuls read: of the dtype that weights were packed for, without scales, or in 8 bits (kernels/ops.h).
struct MatmulRows {
  TensorView values;     ///< [rows, n]
  TensorView scales;     ///< [rows] f32, or no data
  TensorView wide = {};  ///< beside values in 8 bits the same rows in the weights' dtype, or no data
};

/// out = x W^T + bias, with W in the backend's packed layout. Move-only.
class Linear {
 public:
  /// What a rank has of a matrix (tensor parallelism).
  enum class Split {
    none,    ///< all of it
    column,  ///< some of its outputs (columns of W^T)
    row,     ///< all outputs from some of its inputs (rows of W^T): the ranks' outputs have to be added
  };

  Linear() = default;
  /// `bias` is [n_out] float in the backend's memory and must outlive this object, or has no data. It is fastest in
  /// the dtype of `out`. With Split::row, one rank has it.
  explicit Linear(std::unique_ptr<PackedMatrix> weight, const ConstTensorView& bias = {}, Split split = Split::none);

  /// For the operation matmul: x is [rows, n_in] of the dtype that the weight was packed for, out [rows, n_out] float.
  MatmulArgs args(const ConstTensorView& x, const TensorView& out) const { return {x, &weight(), out, bias_, {}}; }
  MatmulArgs args(const MatmulRows& x, const TensorView& out) const {
    if (x.wide.data != nullptr && !takes_f8(out.shape[0])) return args(x.wide, out);
    return {x.values, &weight(), out, bias_, x.scales};
  }
  /// Whether x of so many rows may be in 8 bits.
  bool takes_f8(std::int64_t n_rows) const { return n_rows >= weight().fewest_f8_rows; }
  /// Multiplies for the outputs of all ranks: out is [rows, up to n_out() of each rank]. With Split::column, `parts` is
  /// working memory for [rows, n_out()] of out's dtype; otherwise it is not used.
  void apply_gathered(Backend& backend, const ConstTensorView& x, const RankParts& parts, const TensorView& out) const;

  bool is_empty() const { return weight_ == nullptr; }
  Split split() const { return split_; }
  std::int64_t n_in() const { return weight().k; }
  std::int64_t n_out() const { return weight().n; }
  /// W [n_out, n_in].
  const PackedMatrix& weight() const;
  /// [n_out], or without data.
  const ConstTensorView& bias() const { return bias_; }
  /// Size of the weight on the backend.
  std::size_t size_bytes() const { return is_empty() ? 0 : weight_->size_bytes; }

 private:
  std::unique_ptr<PackedMatrix> weight_;
  ConstTensorView bias_;
  Split split_ = Split::none;
};

/// The linear layers of several experts: each multiplies the rows that chose its expert. Move-only.
class GroupedLinear {
 public:
  GroupedLinear() = default;
  /// `bias` is [n_experts, n_out] f32 in the backend's memory and must outlive this object, or has no data. With Split::row,
  /// one rank has it.
  explicit GroupedLinear(std::unique_ptr<PackedExperts> weights, const ConstTensorView& bias = {},
                         Linear::Split split = Linear::Split::none);

  /// For the operation grouped_matmul: out is [places, n_out] in the order of the sorted choices, x [rows, n_in] of the
  /// dtype that the weights were packed for or, with `is_sorted`, [places, n_in] in that order, computed from the outputs of
  /// other experts' weights for the same choices.
  GroupedMatmulArgs args(const ConstTensorView& x, const ExpertChoices& choices, bool is_sorted, const TensorView& out) const {
    return {x,        is_sorted ? ConstTensorView{} : ConstTensorView(choices.rows), choices.offsets, &weights(), out, bias_,
            is_sorted};
  }

  bool is_empty() const { return weights_ == nullptr; }
  Linear::Split split() const { return split_; }
  /// W [n_experts, n_out, n_in].
  const PackedExperts& weights() const;
  /// Size of the weights on the backend.
  std::size_t size_bytes() const { return is_empty() ? 0 : weights_->size_bytes; }

 private:
  std::unique_ptr<PackedExperts> weights_;
  ConstTensorView bias_;
  Linear::Split split_ = Linear::Split::none;
};

/// A small linear layer for each head. Move-only.
class HeadLinear {
 public:
  HeadLinear() = default;
  explicit HeadLinear(std::unique_ptr<PackedHeads> weights);

  /// For the operation head_matmul: a head's columns of x begin at a multiple of `stride`.
  HeadMatmulArgs args(const ConstTensorView& x, std::int64_t stride, const TensorView& out) const {
    return {x, stride, &weights(), out};
  }

  bool is_empty() const { return weights_ == nullptr; }
  /// W [n_heads, n_out, n_in].
  const PackedHeads& weights() const;
  /// Size of the weights on the backend.
  std::size_t size_bytes() const { return is_empty() ? 0 : weights_->size_bytes; }

 private:
  std::unique_ptr<PackedHeads> weights_;
};

}  // namespace baton
