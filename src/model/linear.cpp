/// Applies linear layers with the operations of ops.h.
#include "model/linear.h"

#include <utility>

#include "core/check.h"

namespace baton {

Linear::Linear(std::unique_ptr<PackedMatrix> weight, const ConstTensorView& bias, Split split)
    : weight_(std::move(weight)), bias_(bias), split_(split) {
  check(weight_ != nullptr, "Linear: no weight");
  check(bias.data == nullptr || bias.shape == Shape{weight_->n}, "Linear: a bias of another width than the weight's");
}

const PackedMatrix& Linear::weight() const {
  check(weight_ != nullptr, "Linear: it has no weight");
  return *weight_;
}

void Linear::apply_gathered(Backend& backend, const ConstTensorView& x, const RankParts& parts, const TensorView& out) const {
  if (split_ != Split::column) return matmul(backend, args(x, out));
  matmul(backend, args(x, parts.own));
  all_gather(backend, {parts.all, out});
}

GroupedLinear::GroupedLinear(std::unique_ptr<PackedExperts> weights, const ConstTensorView& bias, Linear::Split split)
    : weights_(std::move(weights)), bias_(bias), split_(split) {
  check(weights_ != nullptr, "GroupedLinear: no weights");
  check(bias.data == nullptr || bias.shape == Shape{weights_->n_experts, weights_->n},
        "GroupedLinear: biases of another size than the weights'");
}

const PackedExperts& GroupedLinear::weights() const {
  check(weights_ != nullptr, "GroupedLinear: it has no weights");
  return *weights_;
}

HeadLinear::HeadLinear(std::unique_ptr<PackedHeads> weights) : weights_(std::move(weights)) {
  check(weights_ != nullptr, "HeadLinear: no weights");
}

const PackedHeads& HeadLinear::weights() const {
  check(weights_ != nullptr, "HeadLinear: it has no weights");
  return *weights_;
}

}  // namespace baton
