/// Finds models in the cache, or has them downloaded.
#include "io/hub.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/utf8.h"
#include "io/file.h"
#include "io/hub_download.h"
#include "io/hub_files.h"
#include "io/other_weights.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_set(const char* name) {
  std::string value = variable(name);
  std::transform(value.begin(), value.end(), value.begin(), ascii::lower);
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

/// The first of the variables that is set and not empty.
std::string first_variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::string value = variable(name); !value.empty()) return value;
  return "";
}

/// A path from the environment as Python's expanduser and expandvars read it: a leading ~ is HOME, $NAME and ${NAME} are variables
/// where they are set.
fs::path expand(std::string path) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, variable("HOME"));
  for (std::size_t at = 0; (at = path.find('$', at)) != std::string::npos;) {
    const bool is_braced = path.substr(at + 1).starts_with('{');
    const std::size_t begin = at + (is_braced ? 2 : 1);
    const std::size_t end =
        is_braced ? path.find('}', begin)
                  : std::min(path.size(),
                             path.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789", begin));
    if (end == std::string::npos) break;
    const char* value = std::getenv(path.substr(begin, end - begin).c_str());
    if (value != nullptr) path.replace(at, end + (is_braced ? 1 : 0) - at, value);
    at = value != nullptr ? at + std::string_view(value).size() : end;
  }
  return path;
}

/// The token of the environment, else the one that `hf auth login` has saved in `home`.
std::string find_token(const fs::path& home) {
  if (is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return "";
  std::string token = first_variable({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (token.empty()) {
    const std::string path = variable("HF_TOKEN_PATH");
    token = read_file(path.empty() ? home / "token" : expand(path)).value_or("");
  }
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = token.find_first_not_of(kBlank);
  return begin == std::string::npos ? "" : token.substr(begin, token.find_last_not_of(kBlank) + 1 - begin);
}

std::optional<fs::path> complete_snapshot(std::string_view model, std::string_view revision, const HubOptions& options) {
  const fs::path repository = hub::repository_of(options.cache, model);
  const auto commit = hub::cached_commit(repository, revision);
  if (!commit) return std::nullopt;
  fs::path snapshot = repository / "snapshots" / *commit;
  if (!hub::has_all_files(snapshot, options.wants_weights)) return std::nullopt;
  return snapshot;
}

/// What stands in the cache's snapshot in the place of weights that are read.
std::string cached_other_weights(std::string_view model, std::string_view revision, const HubOptions& options) {
  const fs::path repository = hub::repository_of(options.cache, model);
  const auto commit = hub::cached_commit(repository, revision);
  return commit && options.wants_weights ? other_weights_in(repository / "snapshots" / *commit) : "";
}

Result<fs::path> download_or_say_why_not(std::string_view model, std::string_view revision, const HubOptions& options,
                                         const HubProgress& progress) {
  const std::string tried =
      fmt::format("model {} (revision {}) was not found: there is no such folder, no whole copy in the cache {}", model,
                  revision, options.cache.string());
  if (options.is_offline) {
    const std::string others = cached_other_weights(model, revision, options);
    return fail(ErrorCode::not_found, fmt::format("{}, and HF_HUB_OFFLINE forbids to ask the network{}{}", tried,
                                                  others.empty() ? "" : "; of the cached files ", others));
  }
  auto downloaded = hub::download(model, revision, options, progress);
  if (!downloaded)
    downloaded.error().message = fmt::format("{}, and it could not be downloaded: {}", tried, downloaded.error().message);
  return downloaded;
}

/// A folder that has only weights of another format is not a model. A tokenizer may be all that is wanted.
Result<void> check_folder(const fs::path& folder, bool wants_weights) {
  const auto has = [&](const char* name) { return hub::is_there(folder / name); };
  if (has("config.json")) return {};
  if (!wants_weights &&
      (has("tokenizer.json") || has("tokenizer.model") || has("tekken.json") || has("tiktoken.model") || has("vocab.json")))
    return {};
  const std::string others = other_weights_in(folder);
  if (others.empty()) return {};
  return fail(ErrorCode::not_found, fmt::format("{} has no config.json; {}", folder.string(), others));
}

/// A file is not a model; one whose name could be a model's is looked for as such unless it holds weights.
Result<void> refuse_file(std::string_view model) {
  if (!hub::is_there(fs::path(model))) return {};
  const std::string others = other_weights({std::string(model)});
  if (others.empty() && hub::is_model_id(model)) return {};
  return fail(ErrorCode::not_found,
              fmt::format("{} is a file; a model is a folder with config.json, a tokenizer and weights as safetensors{}{}",
                          model, others.empty() ? "" : ". ", others));
}

Result<void> check_names(std::string_view model, std::string_view revision) {
  if (!hub::is_model_id(model)) {
    const std::string others = other_weights({std::string(model)});
    return fail(ErrorCode::not_found, fmt::format("there is no folder {}, and it is not a model's name (ORG/NAME) either{}{}",
                                                  model, others.empty() ? "" : "; ", others));
  }
  if (!hub::is_revision(revision))
    return fail(ErrorCode::invalid_request, fmt::format("'{}' is not the name of a revision", revision));
  return {};
}

/// The revisions of a repository by their commits.
std::map<std::string, std::vector<std::string>> revisions_of(const fs::path& repository) {
  std::map<std::string, std::vector<std::string>> revisions;
  std::error_code error;
  const fs::path refs = repository / "refs";
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(refs, error)) {
    const std::string name = entry.path().lexically_relative(refs).string();
    if (!hub::is_there(entry.path())) continue;
    if (const auto commit = hub::cached_commit(repository, name)) revisions[*commit].push_back(name);
  }
  for (auto& [commit, names] : revisions) std::ranges::sort(names);
  return revisions;
}

/// The bytes of a snapshot's files, after their links.
std::uint64_t bytes_of_snapshot(const fs::path& snapshot) {
  std::uint64_t size_bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(snapshot, error)) {
    const auto bytes = hub::is_there(entry.path()) ? fs::file_size(entry.path(), error) : 0;
    if (!error) size_bytes += bytes;
  }
  return size_bytes;
}

std::string missing_of(const fs::path& snapshot) {
  if (!hub::is_there(snapshot / "config.json")) return "config.json";
  if (hub::has_all_files(snapshot, /*wants_weights=*/true)) return "";
  if (!hub::is_there(snapshot / hub::kIndex)) return "weights";
  const auto shards = hub::shards_of(snapshot / hub::kIndex);
  if (!shards) return "a valid index of its weights";
  const auto n_missing =
      std::ranges::count_if(*shards, [&](const std::string& shard) { return !hub::is_there(snapshot / shard); });
  return fmt::format("{} of {} shards", n_missing, shards->size());
}

}  // namespace

HubOptions hub_options_from_environment() {
  HubOptions options;
  std::string home = variable("HF_HOME");
  if (const std::string caches = variable("XDG_CACHE_HOME"); home.empty())
    home = (caches.empty() ? "~/.cache" : caches) + "/huggingface";
  const std::string cache = first_variable({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  options.cache = cache.empty() ? expand(home) / "hub" : expand(cache);
  options.endpoint = variable("HF_ENDPOINT");
  if (options.endpoint.empty()) options.endpoint = "https://huggingface.co";
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  options.token = find_token(expand(home));
  options.is_offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
  return options;
}

Result<fs::path> find_model(std::string_view model, std::string_view revision, const HubOptions& options,
                            const HubProgress& progress) {
  std::error_code ignored;
  if (fs::is_directory(fs::path(model), ignored)) {
    BATON_TRY_VOID(check_folder(model, options.wants_weights));
    return fs::path(model);
  }
  BATON_TRY_VOID(refuse_file(model));
  BATON_TRY_VOID(check_names(model, revision));
  if (auto snapshot = complete_snapshot(model, revision, options)) return *std::move(snapshot);
  return download_or_say_why_not(model, revision, options, progress);
}

Result<fs::path> pull_model(std::string_view model, std::string_view revision, const HubOptions& options,
                            const HubProgress& progress) {
  BATON_TRY_VOID(check_names(model, revision));
  if (options.is_offline)
    if (auto snapshot = complete_snapshot(model, revision, options)) return *std::move(snapshot);
  return download_or_say_why_not(model, revision, options, progress);
}

std::vector<CachedModel> list_cached_models(const fs::path& cache) {
  constexpr std::string_view kPrefix = "models--";
  std::vector<CachedModel> models;
  std::error_code error;
  for (const fs::directory_entry& repository : fs::directory_iterator(cache, error)) {
    std::string name = repository.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const std::size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
    const auto revisions = revisions_of(repository.path());
    for (const fs::directory_entry& snapshot : fs::directory_iterator(repository.path() / "snapshots", error)) {
      CachedModel model{.name = name, .commit = snapshot.path().filename().string(), .snapshot = snapshot.path()};
      if (!hub::is_commit(model.commit)) continue;
      if (const auto found = revisions.find(model.commit); found != revisions.end()) model.revisions = found->second;
      model.size_bytes = bytes_of_snapshot(snapshot.path());
      model.missing = missing_of(snapshot.path());
      models.push_back(std::move(model));
    }
  }
  std::ranges::sort(models, {}, [](const CachedModel& model) { return std::pair(model.name, model.commit); });
  return models;
}

}  // namespace baton
