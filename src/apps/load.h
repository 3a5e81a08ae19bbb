/// From options to a running engine: finds the model's files, loads weights on the device, makes tokenizer and template.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "apps/options.h"
#include "core/result.h"
#include "engine/engine.h"
#include "server/prefixes.h"
#include "server/served_model.h"

namespace baton {

/// Where a model's files are and what it is called.
struct ModelFiles {
  std::string name;  ///< the id or folder as given; "demo" for the demo model
  std::filesystem::path folder;
  bool is_demo = false;
};

/// A folder, a model of the Hugging Face cache, or a download with progress on standard error. The demo model for an
/// empty name and for "demo", which the server gives it, unless there is a folder ./demo with a config.json.
Result<ModelFiles> find_model_files(const ModelOptions& options);

/// A folder with a config.json among the data beside the program: "models/demo", "shapes/110m". The build folder is laid out as
/// an installation is.
Result<std::filesystem::path> shared_folder(std::string_view what);

/// Loads weights and makes the engine, with one log line that says what was loaded and what fits.
Result<std::unique_ptr<Engine>> load_engine(const ModelFiles& files, const ModelOptions& options);

/// Tokenizer, template and sampling defaults of a model whose engine is `engine`.
Result<ServedModel> load_text(const ModelFiles& files, const ModelOptions& options, const Engine& engine);

/// What one `--prefix NAME=FILE` says.
Result<PrefixDefinition> read_prefix_flag(const std::string& definition);

/// Fills and pins what `--prefix NAME=FILE` names, with one log line each.
Result<Prefixes> load_prefixes(const ModelOptions& options, const ServedModel& model, Engine& engine);

}  // namespace baton
