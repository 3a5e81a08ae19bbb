/// Where a model's files are.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/hub.h"
#include "load/model_options.h"
#include "model/config.h"

namespace baton {

/// Where a model's files are and what it is called.
struct ModelFiles {
  std::string name;  ///< the id or folder as given; "demo" for the demo model
  std::filesystem::path folder;
  bool is_demo = false;
};

/// A folder, a model of the Hugging Face cache, or a download, of which `progress` hears. The demo model for an empty
/// name and for "demo", which the server gives it, unless there is a folder ./demo with a config.json.
Result<ModelFiles> find_model_files(const ModelOptions& options, const HubProgress& progress);

/// The same without weights: what tokenizer, chat templates and configuration need.
Result<ModelFiles> find_text_files(const ModelOptions& options, const HubProgress& progress);

/// The weights' files in a model's folder, by name; none where there is no such folder.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder);

/// The generation_config.json of the folder that `options.generation_config` names, or else the model's: also for
/// "vllm", where its end tokens count and its sampling defaults do not. Errors: invalid_request where the folder has
/// no such file; invalid_data.
Result<GenerationConfig> load_generation_config(const ModelFiles& files, const ModelOptions& options);

/// A folder with a config.json among the data beside the program: "models/demo", "shapes/110m". The build folder is
/// laid out as an installation is.
Result<std::filesystem::path> shared_folder(std::string_view what);

}  // namespace baton
