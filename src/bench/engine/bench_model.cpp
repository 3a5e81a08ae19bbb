/// Finds the model of a benchmark, and says what memory it lacks.
#include "bench/engine/bench_model.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/progress.h"
#include "kernels/backend.h"
#include "load/load_engine.h"
#include "load/model_info.h"
#include "model/config.h"

namespace baton {
namespace {

/// The folder of a shape: a path, or a name of bench/shapes.
Result<ModelFiles> find_shape(const std::string& shape) {
  if (std::filesystem::is_directory(shape)) return ModelFiles{shape, shape, false};
  auto folder = shared_folder("shapes/" + shape);
  if (folder) return ModelFiles{shape, std::move(*folder), false};
  std::vector<std::string> names;
  std::error_code error;
  if (const auto known = shared_folder("shapes/110m"); known) {
    for (const auto& entry : std::filesystem::directory_iterator(known->parent_path(), error))
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return fail(ErrorCode::not_found, fmt::format("--shape {}: neither a folder nor one of {}", shape, fmt::join(names, ", ")),
              "shape");
}

}  // namespace

Result<BenchModel> find_bench_model(const ModelOptions& options, const std::string& shape) {
  BATON_TRY(ModelFiles files, shape.empty() ? find_model_files(options, download_bar()) : find_shape(shape));
  BATON_TRY(ModelSpec spec, read_model_spec(files.folder));
  BenchModel model{std::move(files), std::move(spec), options};
  if (!shape.empty()) model.options.load_format = "dummy";
  return model;
}

ModelOptions offline_model_options(const BenchModel& model, std::int64_t longest) {
  ModelOptions made = model.options;
  if (made.max_model_len == 0)
    made.max_model_len = static_cast<std::int32_t>(std::clamp<std::int64_t>(longest, 2, model.spec.max_position));
  return made;
}

Result<std::unique_ptr<Engine>> load_bench_engine(const BenchModel& model, std::int64_t longest) {
  return load_engine(model.files, offline_model_options(model, longest));
}

Result<MemoryNeed> memory_need(const BenchModel& model, std::int64_t max_len) {
  BATON_TRY(const std::unique_ptr<Backend> backend, make_backend(model.options.device, {}));
  BATON_TRY(const ModelInfo info, read_model_info(model.files.folder, model.options, backend.get()));
  const std::int64_t context = context_bytes(info.groups, max_len);
  const std::int64_t cache = model.options.kv_cache_bytes;
  if (cache > 0 && context > cache) return MemoryNeed{context, cache, backend->info().device};
  return MemoryNeed{info.weights.held + std::max(cache, context), backend->free_memory_bytes(), backend->info().device};
}

Result<MemoryShortage> shortage_behind(const Error& error, const BenchModel& model, std::int64_t longest) {
  if (error.code != ErrorCode::out_of_memory) return tl::unexpected(error);
  BATON_TRY(MemoryNeed need, memory_need(model, longest));
  return MemoryShortage{error.message, std::move(need)};
}

}  // namespace baton
