/// Applies linear layers with the operations of ops.h.
#include "model/linear.h"

#include <utility>

#include "core/check.h"

namespace baton {

Linear::Linear(std::unique_ptr<PackedMatrix> weight, const ConstTensorView& bias) : weight_(std::move(weight)), bias_(bias) {
  check(weight_ != nullptr, "Linear: no weight");
  check(bias.data == nullptr || bias.shape == Shape{weight_->n}, "Linear: a bias of another width than the weight's");
}

const PackedMatrix& Linear::weight() const {
  check(weight_ != nullptr, "Linear: it has no weight");
  return *weight_;
}

void Linear::apply(Backend& backend, const ConstTensorView& x, const TensorView& out) const {
  matmul(backend, {x, &weight(), out, bias_});
}

GroupedLinear::GroupedLinear(std::unique_ptr<PackedExperts> weights) : weights_(std::move(weights)) {
  check(weights_ != nullptr, "GroupedLinear: no weights");
}

const PackedExperts& GroupedLinear::weights() const {
  check(weights_ != nullptr, "GroupedLinear: it has no weights");
  return *weights_;
}

void GroupedLinear::apply(Backend& backend, const ConstTensorView& x, const ExpertChoices& choices, bool is_sorted,
                          const TensorView& out) const {
  grouped_matmul(backend, {x, is_sorted ? ConstTensorView{} : ConstTensorView(choices.rows), choices.offsets, &weights(), out});
}

}  // namespace baton
