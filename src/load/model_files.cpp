/// Finds the folder of a model by its name.
#include "load/model_files.h"

#include <dlfcn.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace baton {

namespace fs = std::filesystem;

Result<fs::path> shared_folder(std::string_view what) {
  std::error_code error;
  // Inside of another program (the Python module) the data lie beside this library.
  Dl_info self{};
  const bool knows_self = dladdr(reinterpret_cast<const void*>(&shared_folder), &self) != 0 && self.dli_fname != nullptr;
  const fs::path beside = fs::path(knows_self ? self.dli_fname : "").parent_path() / "share/baton" / what;
  if (knows_self && fs::exists(beside / "config.json", error)) return beside;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = program.parent_path().parent_path() / "share/baton" / what;
  if (!error && fs::exists(folder / "config.json", error)) return folder;
  return fail(ErrorCode::not_found, fmt::format("there is no model in {}", folder.string()));
}

std::vector<fs::path> weight_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

namespace {

Result<ModelFiles> find_files(const ModelOptions& options, bool wants_weights, const HubProgress& progress) {
  constexpr const char* kDemo = "demo";
  std::error_code ignored;
  // As with every name, a folder with that name wins.
  if (options.model.empty() || (options.model == kDemo && !fs::exists(fs::path(kDemo) / "config.json", ignored))) {
    BATON_TRY(fs::path folder, shared_folder("models/demo"));
    return ModelFiles{kDemo, std::move(folder), true};
  }
  HubOptions hub = hub_options_from_environment();
  if (!options.download_dir.empty()) hub.cache = options.download_dir;
  hub.wants_weights = wants_weights;
  BATON_TRY(fs::path folder, find_model(options.model, options.revision, hub, progress));
  return ModelFiles{options.model, std::move(folder), false};
}

}  // namespace

Result<ModelFiles> find_model_files(const ModelOptions& options, const HubProgress& progress) {
  return find_files(options, /*wants_weights=*/true, progress);
}

Result<ModelFiles> find_text_files(const ModelOptions& options, const HubProgress& progress) {
  return find_files(options, /*wants_weights=*/false, progress);
}

Result<GenerationConfig> load_generation_config(const ModelFiles& files, const ModelOptions& options) {
  if (std::ranges::find(kGenerationConfigs, options.generation_config) != kGenerationConfigs.end())
    return read_generation_config(files.folder);
  const fs::path folder = options.generation_config;
  std::error_code ignored;
  if (!fs::is_regular_file(folder / "generation_config.json", ignored))
    return fail(ErrorCode::invalid_request,
                fmt::format("generation_config must be auto, vllm or a folder with a generation_config.json, got '{}'",
                            options.generation_config),
                "generation_config");
  return read_generation_config(folder);
}

}  // namespace baton
