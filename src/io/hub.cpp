/// The layout of the Hugging Face cache, and downloads into it.
///
///     models--ORG--NAME/refs/<revision>       the commit it stands for, as text
///     models--ORG--NAME/blobs/<etag>          contents
///     models--ORG--NAME/snapshots/<commit>/   the files by name, as links to ../../blobs/<etag>
#include "io/hub.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "io/file.h"
#include "io/http_client.h"
#include "io/json.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
/// Files that Baton reads beside the weights, the tokenizers last: where one of them is, the others are too. Only
/// config.json is required.
constexpr std::array<std::string_view, 9> kSmallFiles = {
    "config.json",         "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "chat_template.json",     "tekken.json",           "tokenizer.model",
    "tokenizer.json"};
constexpr std::array<std::string_view, 3> kTokenizers = {"tokenizer.json", "tokenizer.model", "tekken.json"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_set(const char* name) {
  std::string value = variable(name);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

bool consists_of(std::string_view text, std::string_view also) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || also.find(c) != std::string_view::npos;
  });
}

/// Names that come from outside and become part of a path: no separators, nothing hidden, nothing that leads upwards.
bool is_safe_name(std::string_view name) { return !name.empty() && name.front() != '.' && consists_of(name, "-_."); }

/// NAME or ORG/NAME.
bool is_model_id(std::string_view model) {
  const std::size_t slash = model.find('/');
  if (slash == std::string_view::npos) return is_safe_name(model);
  return is_safe_name(model.substr(0, slash)) && is_safe_name(model.substr(slash + 1));
}

bool is_revision(std::string_view revision) {
  return !revision.empty() && revision.front() != '/' && consists_of(revision, "-_./") &&
         revision.find("..") == std::string_view::npos;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// A file that exists, whatever chain of links leads to it.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The shards an index names.
Result<std::set<std::string>> shards_of(const fs::path& index) {
  BATON_TRY(const json::Value root, json::parse_file(index));
  const json::Value* files = json::find(root, "weight_map");
  std::set<std::string> shards;
  if (files != nullptr && files->is_object()) {
    for (const auto& [tensor, file] : files->items()) {
      const auto name = json::convert<std::string>(file, tensor);
      if (!name || !is_safe_name(*name))
        return fail(ErrorCode::invalid_data, fmt::format("{}: the shard of '{}' must be a file name", index.string(), tensor));
      shards.insert(*name);
    }
  }
  if (shards.empty()) return fail(ErrorCode::invalid_data, fmt::format("{} names no weights", index.string()));
  return shards;
}

/// Whether a snapshot has the files of a model, or those that its text side needs.
bool has_all_files(const fs::path& snapshot, bool wants_weights) {
  if (!is_there(snapshot / "config.json")) return false;
  if (!wants_weights && std::ranges::any_of(kTokenizers, [&](std::string_view name) { return is_there(snapshot / name); }))
    return true;
  if (is_there(snapshot / kWeights)) return true;
  if (!is_there(snapshot / kIndex)) return false;
  const auto shards = shards_of(snapshot / kIndex);
  return shards &&
         std::all_of(shards->begin(), shards->end(), [&](const std::string& shard) { return is_there(snapshot / shard); });
}

/// The commit that the cache knows for `revision`.
std::optional<std::string> cached_commit(const fs::path& repository, std::string_view revision) {
  if (is_commit(revision)) return std::string(revision);
  auto text = read_file(repository / "refs" / revision);
  if (!text) return std::nullopt;
  text->erase(std::find_if(text->begin(), text->end(), [](char c) { return c == '\n' || c == '\r' || c == ' '; }), text->end());
  if (!is_commit(*text)) return std::nullopt;
  return *text;
}

/// Downloads the snapshot of one commit.
class Download {
 public:
  Download(std::string_view model, const fs::path& repository, const HubOptions& options, const HubProgress& progress)
      : model_(model), repository_(repository), options_(options), progress_(progress) {}

  Result<fs::path> run(std::string_view revision) {
    BATON_TRY_VOID(ask_for_commit(revision));
    log::info("event=download model={} commit={} endpoint={}", model_, commit_, options_.endpoint);
    BATON_TRY_VOID(make_folder(snapshot()));
    BATON_TRY_VOID(make_folder(repository_ / "blobs"));
    for (const std::string_view file : kSmallFiles) {
      if (files_.contains(std::string(file))) BATON_TRY_VOID(fetch(std::string(file)));
    }
    if (!options_.wants_weights) {
      // The revision is noted too: a model without its weights is found as incomplete when they are wanted.
    } else if (files_.contains(std::string(kWeights))) {
      BATON_TRY_VOID(fetch(std::string(kWeights)));
    } else {
      BATON_TRY_VOID(fetch(std::string(kIndex)));
      BATON_TRY(const auto shards, shards_of(snapshot() / kIndex));
      for (const std::string& shard : shards) BATON_TRY_VOID(fetch(shard));
    }
    if (!is_commit(revision)) {  // written last, so that a revision in the cache is complete
      const fs::path ref = repository_ / "refs" / revision;
      BATON_TRY_VOID(make_folder(ref.parent_path()));
      BATON_TRY_VOID(write_file(ref, commit_));
    }
    return snapshot();
  }

 private:
  fs::path snapshot() const { return repository_ / "snapshots" / commit_; }

  static Result<void> make_folder(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return fail(ErrorCode::io, fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
    return {};
  }

  tl::unexpected<Error> bad_status(const std::string& url, long status) const {
    const std::string_view hint = status == 401 || status == 403
                                      ? " (private or gated: set HF_TOKEN, accept the model's conditions)"
                                  : status == 404 ? " (there is no such model or revision)"
                                                  : "";
    return fail(status == 404 ? ErrorCode::not_found : ErrorCode::unavailable,
                fmt::format("{}: HTTP status {}{}", url, status, hint));
  }

  /// Sets commit_ and files_.
  Result<void> ask_for_commit(std::string_view revision) {
    std::string escaped;
    for (const char c : revision) escaped += c == '/' ? "%2F" : std::string(1, c);
    const std::string url = fmt::format("{}/api/models/{}/revision/{}", options_.endpoint, model_, escaped);
    BATON_TRY(const HttpReply reply, http_get(url, options_.token));
    if (reply.status != 200) return bad_status(url, reply.status);
    BATON_TRY(const json::Value info, json::parse(reply.body, url));
    BATON_TRY(commit_, json::get<std::string>(info, "sha"));
    if (!is_commit(commit_)) return fail(ErrorCode::invalid_data, fmt::format("{}: 'sha' is not a commit", url));
    BATON_TRY(const auto siblings, json::get<std::vector<json::Value>>(info, "siblings"));
    for (const json::Value& sibling : siblings) {
      BATON_TRY(std::string name, json::get<std::string>(sibling, "rfilename"));
      files_.insert(std::move(name));
    }
    for (const std::string_view needed :
         {std::string_view("config.json"), files_.contains(std::string(kWeights)) ? kWeights : kIndex})
      if (!files_.contains(std::string(needed)) && (options_.wants_weights || needed == "config.json"))
        return fail(ErrorCode::not_found, fmt::format("{} has no {} at {}; weights must be in the safetensors format", model_,
                                                      needed, options_.endpoint));
    return {};
  }

  /// Downloads one file to the blobs and links it into the snapshot.
  Result<void> fetch(const std::string& file) {
    const fs::path target = snapshot() / file;
    if (is_there(target)) return {};
    const std::string url = fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, model_, commit_, file);
    BATON_TRY(const HttpReply head, http_head(url, options_.token));
    if (head.status >= 400) return bad_status(url, head.status);
    // Large files are redirected to another server; the first one knows their etag and size.
    const auto header = [&](const char* linked, const char* plain) -> std::string {
      for (const char* name : {linked, plain})
        if (const auto found = head.headers.find(name); found != head.headers.end()) return found->second;
      return "";
    };
    std::string etag = header("x-linked-etag", "etag");
    if (etag.starts_with("W/")) etag.erase(0, 2);
    std::erase(etag, '"');
    const std::string size_text = header("x-linked-size", "content-length");
    if (!is_safe_name(etag) || size_text.empty() || size_text.size() > 18 ||
        size_text.find_first_not_of("0123456789") != std::string::npos)
      return fail(ErrorCode::invalid_data, fmt::format("{}: the reply names no etag and size", url));
    const std::uint64_t size_bytes = std::stoull(size_text);

    const fs::path blob = repository_ / "blobs" / etag;
    if (!is_there(blob)) {
      const fs::path incomplete = blob.string() + ".incomplete";
      BATON_TRY_VOID(
          http_download(url, options_.token, incomplete, size_bytes, [&](std::uint64_t received, std::uint64_t total) {
            if (progress_) progress_(file, received, total);
          }));
      std::error_code error;
      fs::rename(incomplete, blob, error);
      if (error && !is_there(blob))
        return fail(ErrorCode::io, fmt::format("cannot write {}: {}", blob.string(), error.message()));
    }
    std::error_code error;
    fs::remove(target, error);  // a link that leads nowhere
    fs::create_symlink(fs::path("../../blobs") / etag, target, error);
    if (error) fs::rename(blob, target, error);  // file systems without links hold the files themselves
    if (error) return fail(ErrorCode::io, fmt::format("cannot write {}: {}", target.string(), error.message()));
    return {};
  }

  const std::string model_;
  const fs::path repository_;
  const HubOptions& options_;
  const HubProgress& progress_;
  std::string commit_;
  std::set<std::string> files_;
};

}  // namespace

HubOptions hub_options_from_environment() {
  HubOptions options;
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) {
    options.cache = cache;
  } else if (const std::string home = variable("HF_HOME"); !home.empty()) {
    options.cache = fs::path(home) / "hub";
  } else {
    options.cache = fs::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
  }
  options.endpoint = variable("HF_ENDPOINT");
  if (options.endpoint.empty()) options.endpoint = "https://huggingface.co";
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  options.token = variable("HF_TOKEN");
  options.is_offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
  return options;
}

Result<fs::path> find_model(std::string_view model, std::string_view revision, const HubOptions& options,
                            const HubProgress& progress) {
  std::error_code ignored;
  if (fs::is_directory(fs::path(model), ignored)) return fs::path(model);
  if (!is_model_id(model))
    return fail(ErrorCode::not_found,
                fmt::format("there is no folder {}, and it is not a model's name (ORG/NAME) either", model));
  if (!is_revision(revision))
    return fail(ErrorCode::invalid_request, fmt::format("'{}' is not the name of a revision", revision));

  std::string folder = "models--" + std::string(model);
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  const fs::path repository = options.cache / folder;
  if (const auto commit = cached_commit(repository, revision)) {
    const fs::path snapshot = repository / "snapshots" / *commit;
    if (has_all_files(snapshot, options.wants_weights)) return snapshot;
  }
  const std::string tried =
      fmt::format("model {} (revision {}) was not found: there is no such folder, no whole copy in the cache {}", model,
                  revision, options.cache.string());
  if (options.is_offline) return fail(ErrorCode::not_found, tried + ", and HF_HUB_OFFLINE forbids to ask the network");
  auto downloaded = Download(model, repository, options, progress).run(revision);
  if (!downloaded)
    downloaded.error().message = fmt::format("{}, and it could not be downloaded: {}", tried, downloaded.error().message);
  return downloaded;
}

}  // namespace baton
