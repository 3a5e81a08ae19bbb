/// The model's generation_config.json, or that of another folder.
#include "load/generation_config.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace baton {

Result<GenerationConfig> load_generation_config(const ModelFiles& files, const ModelOptions& options) {
  if (std::ranges::find(kGenerationConfigs, options.generation_config) != kGenerationConfigs.end())
    return read_generation_config(files.folder);
  const std::filesystem::path folder = options.generation_config;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(folder / "generation_config.json", ignored))
    return fail(ErrorCode::invalid_request,
                fmt::format("generation_config must be auto, vllm or a folder with a generation_config.json, got '{}'",
                            options.generation_config),
                "generation_config");
  return read_generation_config(folder);
}

}  // namespace baton
