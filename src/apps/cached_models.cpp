/// Downloads models, and lists them.
#include "apps/programs.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output.h"
#include "cli/progress.h"
#include "io/hub.h"
#include "io/json.h"
#include "model/config.h"

namespace baton {
namespace {

HubOptions hub_options(const std::string& download_dir) {
  HubOptions options = hub_options_from_environment();
  if (!download_dir.empty()) options.cache = download_dir;
  return options;
}

Result<void> pull(const PullOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(options.model.model, ignored))
    return fail(ErrorCode::invalid_request,
                fmt::format("{} is a folder; only a model's name (ORG/NAME) can be downloaded", options.model.model));
  BATON_TRY(const auto folder,
            pull_model(options.model.model, options.model.revision, hub_options(options.model.download_dir), download_bar()));
  print_output("{}\n", folder.string());
  return {};
}

/// The architecture as Baton names it, or what the configuration says and why Baton does not load it.
struct Architecture {
  std::string name;
  std::string fault;
};

Architecture architecture_of(const CachedModel& model) {
  const auto spec = read_model_spec(model.snapshot);
  if (spec) return {spec->family, ""};
  Architecture found{"", spec.error().message};
  const auto config = json::parse_file(model.snapshot / "config.json");
  if (!config) return found;
  if (const json::Value* names = json::find(*config, "architectures");
      names != nullptr && names->is_array() && !names->empty() && names->front().is_string())
    found.name = names->front().get<std::string>();
  return found;
}

std::string revision_text(const CachedModel& model) {
  constexpr std::size_t kShownDigits = 8;
  return model.revisions.empty() ? model.commit.substr(0, kShownDigits) : fmt::format("{}", fmt::join(model.revisions, ","));
}

void print_models(const std::vector<CachedModel>& models) {
  std::size_t name_width = 4, revision_width = 8;
  for (const CachedModel& model : models) {
    name_width = std::max(name_width, model.name.size());
    revision_width = std::max(revision_width, revision_text(model).size());
  }
  print_output("{:<{}}  {:<{}}  {:>10}  {:<24}  {}\n", "name", name_width, "revision", revision_width, "size", "architecture",
               "state");
  for (const CachedModel& model : models) {
    const Architecture architecture = architecture_of(model);
    const std::string state = !model.missing.empty()        ? "missing: " + model.missing
                              : !architecture.fault.empty() ? "refused: " + architecture.fault
                                                            : "complete";
    print_output("{:<{}}  {:<{}}  {:>7.1f} MB  {:<24}  {}\n", model.name, name_width, revision_text(model), revision_width,
                 static_cast<double>(model.size_bytes) / 1e6, architecture.name, state);
  }
}

json::Value to_json(const std::vector<CachedModel>& models) {
  json::Value list = json::Value::array();
  for (const CachedModel& model : models) {
    const Architecture architecture = architecture_of(model);
    json::Value entry{{"name", model.name},
                      {"commit", model.commit},
                      {"revisions", model.revisions},
                      {"folder", model.snapshot.string()},
                      {"size_bytes", model.size_bytes},
                      {"architecture", architecture.name},
                      {"complete", model.missing.empty()}};
    if (!model.missing.empty()) entry["missing"] = model.missing;
    if (!architecture.fault.empty()) entry["refused"] = architecture.fault;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

int pull_main(const PullOptions& options) {
  if (options.model.model.empty()) {
    print_note("baton pull: name a model: baton pull ORG/NAME\n");
    return 2;
  }
  return exit_code("baton pull", pull(options));
}

int list_main(const ListOptions& options) {
  const HubOptions hub = hub_options(options.download_dir);
  const std::vector<CachedModel> models = list_cached_models(hub.cache);
  if (options.as_json) {
    print_output("{}\n", json::dump_pretty(to_json(models)));
  } else if (models.empty()) {
    print_note("there are no models in {}; baton pull ORG/NAME downloads one\n", hub.cache.string());
  } else {
    print_models(models);
  }
  return 0;
}

}  // namespace baton
