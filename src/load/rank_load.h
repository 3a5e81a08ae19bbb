/// How the ranks > 0 of tensor parallelism load the model that rank 0 loads, and find out that it is the same.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "load/model_files.h"
#include "load/model_options.h"
#include "ranks/rank_group.h"

namespace baton {

/// A checksum of a model's weights that is cheap for any size: of config.json, of the name, the size, the header and some
/// samples of each file of weights, and of what they, and activations, are rounded to. The files are left out if weights are random
/// (`load_format` dummy). Errors: those of the files and of quantization_text.
Result<std::string> model_digest(const std::filesystem::path& folder, const ModelOptions& options);

/// Rank 0: what the other ranks must know before any rank opens its device, as text.
Result<std::string> describe_load(const ModelFiles& files, const ModelOptions& options);
/// Rank 0: what they must know of its device, as text. `dtype` is the weights', `activation_dtype` that of word_for_ranks.
std::string describe_device(DType dtype, std::string_view activation_dtype, const BackendInfo& device);

/// The other ranks: loads what rank 0 loads and follows it, until rank 0 ends the group. Returns an error that rank 0
/// knows: the group's fault, or why this rank cannot continue: it has other files, another device, too little memory.
Result<void> run_rank(const std::shared_ptr<RankGroup>& ranks);

}  // namespace baton
