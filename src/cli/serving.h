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

/// An engine, and the model under its name with its text side, as the server sees it.
struct ServedEngine {
  std::unique_ptr<Engine> engine;  ///< not started
  ServedModel served;
};

/// Loads the text side first, so that a folder without a tokenizer is known at once, then the weights. The engine also ends
/// answers at the tokens that end one in the model's format. Errors: those of load_text and load_engine.
Result<ServedEngine> load_served(const ModelFiles& files, ModelOptions options);

/// Parses one `--prefix NAME=FILE`.
Result<PrefixDefinition> read_prefix_flag(const std::string& definition);

/// Computes and pins the prompt of each `--prefix NAME=FILE`, with one log line each.
Result<std::unique_ptr<Prefixes>> load_prefixes(const std::vector<std::string>& definitions, const ServedModel& model,
                                                Engine& engine);

}  // namespace baton
