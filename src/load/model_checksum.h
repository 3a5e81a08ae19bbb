/// A checksum of everything that a model's answers come from, and of its parts.
#pragma once

#include "core/result.h"
#include "io/prefix_file.h"
#include "load/model_files.h"
#include "load/model_options.h"

namespace baton {

/// The fact "model": a checksum of config.json and of the names and all bytes of the weights' files, as 64 hexadecimal digits; of
/// config.json and the seed where the weights are random (`load_format` dummy); and of what else says how they are quantised
/// (quantization_text). After it the facts that explain it ("model: weights"...): the parts that went in, each with a checksum or
/// as it is. Reads all weights once. It finds other weights, not forged ones (damage_checksum). Errors: those of the files.
Result<PrefixIdentity> model_checksum(const ModelFiles& files, const ModelOptions& options);

}  // namespace baton
