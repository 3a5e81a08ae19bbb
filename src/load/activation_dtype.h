/// Decides whether FP8 weights multiply activations in FP8 (`--activation-dtype`).
///
/// auto: in FP8 where the checkpoint states it with a scale for each token or for the tensor, the device multiplies faster by
/// them, and batches may change bits; otherwise in the dtype of the model, which loses nothing. So nothing but the checkpoint or
/// the flag makes answers less exact. Activations always get a scale for each token, by its largest number: that is at least as
/// exact as the file's scale of the tensor.
#pragma once

#include "core/result.h"
#include "load/model_options.h"
#include "model/quantization.h"
#include "model/source/rounding.h"

namespace baton {

/// dtype: the model's; if_taken: FP8 for matrices that take it; required: there must be some.
enum class ActivationChoice { dtype, if_taken, required };

/// What the options mean for a checkpoint that states `stated` and is rounded at load as `rounding` says. Errors
/// (invalid_request) name the flag: fp8 with --batch-invariant, or without weights in FP8.
Result<ActivationChoice> activations_of(const ModelOptions& options, const QuantizationSpec& stated,
                                        const WeightRounding& rounding, bool device_gains);

/// Whether the loaded matrices get rows in 8 bits, of which `are_taken` says whether some take them. Error: required, and none do.
Result<bool> rows_in_8_bits(ActivationChoice choice, bool are_taken);

}  // namespace baton
