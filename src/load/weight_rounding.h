/// What `--quantization` means for a model: nothing new for a checkpoint that is quantised so, or weights that are rounded at load.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"
#include "load/model_options.h"
#include "model/quantization.h"
#include "model/source/rounding.h"
#include "model/spec.h"

namespace baton {

/// `options.quantization` and `options.quantize_lm_head` beside what the checkpoint's configuration states. Errors (invalid_request)
/// name both: another method than the checkpoint's; one that only checkpoints have, where the checkpoint is dense; an output layer
/// that nothing rounds.
Result<WeightRounding> rounding_of(const ModelOptions& options, const QuantizationSpec& stated);

/// A line for checksums of a model in `folder`: what its weights are rounded to, or nothing where they are not. Errors: those of
/// reading config.json and of rounding_of.
Result<std::string> rounding_line(const std::filesystem::path& folder, const ModelOptions& options);

/// One log line: the scheme, its scales and the matrices that stay in 16 bits. Nothing where weights stay as they are.
void log_rounding(const WeightRounding& rounding, const ModelSpec& spec);

}  // namespace baton
