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

/// Text for checksums of a model in `folder`, beside its config.json: the files of quantization_files() that are there, and what its
/// weights are rounded to, if they are. Errors: those of reading the files and of rounding_of.
Result<std::string> quantization_text(const std::filesystem::path& folder, const ModelOptions& options);

/// One log line: the scheme, its scales and the matrices that stay in 16 bits. Nothing where weights stay as they are.
void log_rounding(const WeightRounding& rounding, const ModelSpec& spec);

}  // namespace baton
