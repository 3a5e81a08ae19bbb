/// Makes the server's objects from a loaded model: the served model, and the prefixes of the flags.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "load/model_files.h"
#include "load/model_options.h"
#include "server/prefixes/prefixes.h"
#include "server/served/served_model.h"

namespace baton {

/// The text side of a model whose engine is `engine`, under the name of its files.
Result<ServedModel> load_served_model(const ModelFiles& files, const ModelOptions& options, const Engine& engine);

/// Parses one `--prefix NAME=FILE`.
Result<PrefixDefinition> read_prefix_flag(const std::string& definition);

/// Computes and pins the prompt of each `--prefix NAME=FILE`, with one log line each.
Result<std::unique_ptr<Prefixes>> load_prefixes(const std::vector<std::string>& definitions, const ServedModel& model,
                                                Engine& engine);

}  // namespace baton
