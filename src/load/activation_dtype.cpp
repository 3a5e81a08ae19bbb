#include "load/activation_dtype.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {
namespace {

using Kind = ActivationChoice::Kind;

tl::unexpected<Error> refuse_activations(Kind kind, std::string_view why) {
  return fail(ErrorCode::invalid_request, fmt::format("--activation-dtype {}: {}", kind == Kind::fp8 ? "fp8" : "int8", why),
              "activation_dtype");
}

/// Whether some weights are in one of `schemes`.
bool has_weights_in(std::initializer_list<WeightScheme> schemes, const QuantizationSpec& stated,
                    const WeightRounding& rounding) {
  const auto is_one = [&](WeightScheme scheme) { return std::ranges::find(schemes, scheme) != schemes.end(); };
  return is_one(rounding.scheme) ||
         std::ranges::any_of(stated.statements, [&](const SchemeStatement& each) { return is_one(each.scheme); });
}

}  // namespace

Result<ActivationChoice> activations_of(const ModelOptions& options, const QuantizationSpec& stated,
                                        const WeightRounding& rounding, const BackendCapabilities& device) {
  if (options.activation_dtype == "dtype") return ActivationChoice{};
  if (options.activation_dtype == "auto") {
    if (stated.has_f8_activations && device.gains_by_f8_rows && !options.batch_invariant) return ActivationChoice{Kind::fp8};
    if (stated.has_int8_activations && device.gains_by_int8_x) return ActivationChoice{Kind::int8};
    return ActivationChoice{};
  }
  if (options.activation_dtype == "int8") {
    if (!device.has_int8_x)
      return refuse_activations(Kind::int8,
                                "this device multiplies no activations in int8, a CPU does (--device cpu); leave the flag out");
    if (!has_weights_in({WeightScheme::i8, WeightScheme::i4}, stated, rounding))
      return refuse_activations(Kind::int8,
                                "no weights are in int8 or int4; a dense checkpoint's are with --quantization int8 or int4");
    return ActivationChoice{Kind::int8, true};
  }
  if (options.batch_invariant)
    return refuse_activations(
        Kind::fp8,
        "--batch-invariant has one arithmetic for steps of all lengths, with activations in the dtype of the model; leave one "
        "of the two flags out");
  if (!has_weights_in({WeightScheme::f8}, stated, rounding))
    return refuse_activations(Kind::fp8, "no weights are in FP8; a dense checkpoint's are with --quantization fp8");
  return ActivationChoice{Kind::fp8, true};
}

std::string_view word_for_ranks(const ActivationChoice& choice, const ModelOptions& options) {
  switch (choice.kind) {
    case Kind::dtype: return "dtype";
    case Kind::int8: return "int8";
    case Kind::fp8: return options.activation_dtype;
  }
  check_failed("word_for_ranks: no such activations");
}

Result<bool> expect_taken(const ActivationChoice& choice, bool are_taken) {
  if (are_taken || !choice.is_required) return are_taken;
  if (choice.kind == Kind::int8)
    return refuse_activations(Kind::int8,
                              "all matrices in int8 and int4 are experts', which do not multiply them; leave the flag out");
  return refuse_activations(
      Kind::fp8,
      "none of the model's matrices multiplies them on this device (CUDA: compute capability 9.0, --dtype bfloat16 or "
      "float16, a multiple of 64 columns, scales for at least 128 of them); leave the flag out");
}

}  // namespace baton
