/// Decides whether weights in FP8 or in integers multiply activations that are rounded to 8 bits (`--activation-dtype`).
///
/// auto: rounded where the checkpoint states it and the device multiplies faster by them; otherwise in the dtype of the model,
/// which loses nothing. So nothing but the checkpoint or the flag makes answers less exact.
///
///     kind  the checkpoint states                               scales are by the largest number of     batches may change bits
///     fp8   8-bit floats, scaled by the token or the tensor     a token                                 yes
///     int8  8-bit integers, scaled by the token as it comes     a token's block of 128 columns at most  no
///
/// Both are at least as exact as the file's scales.
#pragma once

#include <string_view>

#include "core/result.h"
#include "kernels/backend.h"
#include "load/model_options.h"
#include "model/quantization.h"
#include "model/source/rounding.h"

namespace baton {

/// What matrices multiply that can; others multiply numbers of the model's dtype.
struct ActivationChoice {
  enum class Kind { dtype, fp8, int8 };

  Kind kind = Kind::dtype;
  bool is_required = false;  ///< there must be matrices that can

  bool operator==(const ActivationChoice&) const = default;
};

/// What the options mean for a checkpoint that states `stated` and is rounded at load as `rounding` says. Errors
/// (invalid_request) name the flag: fp8 with --batch-invariant, or without weights in FP8; int8 on another device than a CPU, or
/// without weights in integers.
Result<ActivationChoice> activations_of(const ModelOptions& options, const QuantizationSpec& stated,
                                        const WeightRounding& rounding, const BackendCapabilities& device);

/// The `--activation-dtype` with which the other ranks choose what rank 0 chose, whatever their devices gain by.
std::string_view word_for_ranks(const ActivationChoice& choice, const ModelOptions& options);

/// Checks a choice against the model's matrices. `are_taken` says whether some of them multiply such activations; for FP8
/// this is known once they are loaded. Returns `are_taken`. Error: the options require them, and no matrix takes them.
Result<bool> expect_taken(const ActivationChoice& choice, bool are_taken);

}  // namespace baton
