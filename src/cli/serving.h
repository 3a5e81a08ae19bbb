/// Makes the server's objects from a loaded model: the served model, and the prefixes of the flags.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "load/load_text.h"
#include "load/model_files.h"
#include "server/prefixes/prefixes.h"
#include "server/served/served_model.h"

namespace baton {

/// The model of `files`, under their name, with its text side (load_text, which comes before the weights, so that a folder
/// without a tokenizer is known at once) and the engine that computes it.
ServedModel served_model(const ModelFiles& files, TextSide text, const Engine& engine);

/// Parses one `--prefix NAME=FILE`.
Result<PrefixDefinition> read_prefix_flag(const std::string& definition);

/// Computes and pins the prompt of each `--prefix NAME=FILE`, with one log line each.
Result<std::unique_ptr<Prefixes>> load_prefixes(const std::vector<std::string>& definitions, const ServedModel& model,
                                                Engine& engine);

}  // namespace baton
