/// Which generation_config.json counts.
#pragma once

#include "core/result.h"
#include "load/model_files.h"
#include "load/model_options.h"
#include "model/config.h"

namespace baton {

/// The generation_config.json of the folder that `options.generation_config` names, or else the model's: also for
/// "vllm", where its end tokens count and its sampling defaults do not. Errors: invalid_request where the folder has
/// no such file; invalid_data.
Result<GenerationConfig> load_generation_config(const ModelFiles& files, const ModelOptions& options);

}  // namespace baton
