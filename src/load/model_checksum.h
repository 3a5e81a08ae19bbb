/// A checksum of everything that a model's answers come from.
#pragma once

#include <string>

#include "core/result.h"
#include "load/model_files.h"
#include "load/model_options.h"

namespace baton {

/// A checksum of config.json and of the names and all bytes of the weights' files, as 64 hexadecimal digits; of config.json and
/// the seed where the weights are random (`load_format` dummy); and of what else says how they are quantised (quantization_text). Reads all weights once. It finds other weights, not forged ones
/// (damage_checksum). Errors: those of the files.
Result<std::string> model_checksum(const ModelFiles& files, const ModelOptions& options);

}  // namespace baton
