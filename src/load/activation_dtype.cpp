#include "load/activation_dtype.h"

#include <algorithm>
#include <string>
#include <utility>

namespace baton {
namespace {

tl::unexpected<Error> refuse_activations(std::string why) {
  return fail(ErrorCode::invalid_request, "--activation-dtype fp8: " + std::move(why), "activation_dtype");
}

}  // namespace

Result<ActivationChoice> activations_of(const ModelOptions& options, const QuantizationSpec& stated,
                                        const WeightRounding& rounding, bool device_gains) {
  if (options.activation_dtype == "dtype") return ActivationChoice::dtype;
  if (options.activation_dtype == "auto")
    return stated.has_f8_activations && device_gains && !options.batch_invariant ? ActivationChoice::if_taken
                                                                                 : ActivationChoice::dtype;
  if (options.batch_invariant)
    return refuse_activations(
        "--batch-invariant has one arithmetic for steps of all lengths, with activations in the dtype of the model; leave one "
        "of the two flags out");
  const bool has_f8 =
      rounding.scheme == WeightScheme::f8 ||
      std::ranges::any_of(stated.statements, [](const SchemeStatement& each) { return each.scheme == WeightScheme::f8; });
  if (!has_f8) return refuse_activations("no weights are in FP8; a dense checkpoint's are with --quantization fp8");
  return ActivationChoice::required;
}

Result<bool> rows_in_8_bits(ActivationChoice choice, bool are_taken) {
  if (choice == ActivationChoice::required && !are_taken)
    return refuse_activations(
        "none of the model's matrices multiplies them on this device (CUDA: compute capability 9.0, --dtype bfloat16 or "
        "float16, scales for at least 128 columns); leave the flag out");
  return choice != ActivationChoice::dtype && are_taken;
}

}  // namespace baton
