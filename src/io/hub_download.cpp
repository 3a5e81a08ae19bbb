/// One file after another: small ones first, then the weights.
#include "io/hub_download.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "io/checksum.h"
#include "io/file.h"
#include "io/file_lock.h"
#include "io/hub_files.h"
#include "io/json.h"
#include "io/other_weights.h"

namespace baton::hub {
namespace {

namespace fs = std::filesystem;

/// Makes a folder in the cache. A user who may write to a shared cache could plant a link there that leads to the
/// folders of others.
Result<void> make_folder(const fs::path& cache, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(cache, error);
  fs::path part = cache;
  for (const fs::path& name : folder.lexically_relative(cache)) {
    std::error_code ignored;
    if (fs::is_symlink(part /= name, ignored))
      return fail(ErrorCode::io,
                  fmt::format("{} is a link, and downloads follow no links in the cache: remove it, or choose another "
                              "cache (--download-dir, HF_HUB_CACHE)",
                              part.string()));
    if (!error) fs::create_directory(part, error);
  }
  if (error) return fail(ErrorCode::io, fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  return {};
}

/// The name of a file's contents among the blobs, as Hugging Face's programs choose it. An etag that is no checksum may
/// be that of several files.
Result<std::string> blob_name(const std::string& file, const RemoteFile& remote) {
  constexpr std::size_t kDigits = 16;
  if (is_checksum(remote.etag)) return remote.etag;
  BATON_TRY(const std::string sum, sha256_of_text(fmt::format("{} {}", remote.size_bytes, file)));
  return fmt::format("{}-{}", remote.etag, sum.substr(0, kDigits));
}

Result<RemoteFile> ask_for_file(std::string url, const std::string& token) {
  BATON_TRY(const HttpReply head, http_head(url, token, names_linked_file));
  return remote_file_of(std::move(url), head);
}

class Download {
 public:
  Download(std::string_view model, const HubOptions& options, const HubProgress& progress)
      : model_(model), repository_(repository_of(options.cache, model)), options_(options), progress_(progress) {}

  Result<fs::path> run(std::string_view revision) {
    BATON_TRY_VOID(ask_for_commit(revision));
    log::info("event=download model={} commit={} endpoint={}", log_value(model_), commit_, log_value(options_.endpoint));
    BATON_TRY_VOID(make_folder(options_.cache, snapshot()));
    BATON_TRY_VOID(make_folder(options_.cache, repository_ / "blobs"));
    std::vector<std::string> names = small_files_of(files_);
    if (options_.wants_weights) {
      const bool is_single = files_.contains(std::string(kWeights));
      if (!is_single) BATON_TRY_VOID(fetch({std::string(kIndex)}));
      if (is_single) {
        names.emplace_back(kWeights);
      } else {
        BATON_TRY(const auto shards, shards_of(snapshot() / kIndex));
        names.insert(names.end(), shards.begin(), shards.end());
      }
    }
    BATON_TRY_VOID(fetch(names));
    if (!is_commit(revision)) {  // written last, so that a revision in the cache is complete
      const fs::path ref = repository_ / "refs" / revision;
      BATON_TRY_VOID(make_folder(options_.cache, ref.parent_path()));
      BATON_TRY_VOID(write_file(ref, commit_));
    }
    return snapshot();
  }

 private:
  /// A file of the snapshot that is not there.
  struct MissingFile {
    std::string name;
    std::string blob;  ///< the name of its contents
    RemoteFile remote;
  };

  fs::path snapshot() const { return repository_ / "snapshots" / commit_; }

  /// Sets commit_ and files_.
  Result<void> ask_for_commit(std::string_view revision) {
    std::string escaped;
    for (const char c : revision) escaped += c == '/' ? "%2F" : std::string(1, c);
    const std::string url = fmt::format("{}/api/models/{}/revision/{}", options_.endpoint, model_, escaped);
    BATON_TRY(const HttpReply reply, http_get(url, options_.token));
    BATON_TRY(RemoteModel remote, remote_model_of(url, reply));
    commit_ = std::move(remote.commit);
    files_ = std::move(remote.files);
    for (const std::string_view needed :
         {std::string_view("config.json"), files_.contains(std::string(kWeights)) ? kWeights : kIndex})
      if (!files_.contains(std::string(needed)) && (options_.wants_weights || needed == "config.json"))
        return fail(ErrorCode::not_found, missing_file(needed));
    return {};
  }

  /// What an error says where the repository lacks a file, and what it has in its place.
  std::string missing_file(std::string_view needed) const {
    const std::string others = other_weights(files_);
    const std::string_view known = needed == "config.json" ? "" : "weights must be in the safetensors format";
    const std::string_view more = others.empty() ? known : others;
    return fmt::format("{} has no {} at {}{}{}", model_, needed, options_.endpoint, more.empty() ? "" : "; ", more);
  }

  /// Asks for the sizes of the files that are missing, then downloads them.
  Result<void> fetch(const std::vector<std::string>& names) {
    std::vector<MissingFile> missing;
    HubTransfer transfer;
    std::uint64_t to_download = 0;
    for (const std::string& name : names) {
      if (is_there(snapshot() / name)) continue;
      BATON_TRY(RemoteFile remote,
                ask_for_file(fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, model_, commit_, name), options_.token));
      BATON_TRY(std::string blob, blob_name(name, remote));
      transfer.total_bytes += remote.size_bytes;
      std::error_code error;
      const auto held = fs::file_size(repository_ / "blobs" / (blob + ".incomplete"), error);
      const bool is_held = is_there(repository_ / "blobs" / blob);
      to_download += is_held ? 0 : remote.size_bytes - (error ? 0 : std::min<std::uint64_t>(held, remote.size_bytes));
      missing.push_back({name, std::move(blob), std::move(remote)});
    }
    BATON_TRY_VOID(check_disk(to_download));
    transfer.n_files = static_cast<int>(missing.size());
    for (const MissingFile& file : missing) {
      ++transfer.number;
      transfer.file = file.name;
      transfer.file_bytes = file.remote.size_bytes;
      BATON_TRY_VOID(fetch_one(file, transfer));
      transfer.done_bytes += file.remote.size_bytes;
    }
    return {};
  }

  Result<void> check_disk(std::uint64_t to_download) const {
    std::error_code error;
    const fs::space_info space = fs::space(repository_, error);
    if (error || space.available >= to_download) return {};
    return fail(ErrorCode::too_large,
                fmt::format("{}: {} bytes ({:.1f} GB) are missing, and {} has {} bytes ({:.1f} GB) left", model_, to_download,
                            static_cast<double>(to_download) / 1e9, repository_.string(), space.available,
                            static_cast<double>(space.available) / 1e9));
  }

  /// Downloads one file to the blobs, compares it with its checksum and links it into the snapshot.
  Result<void> fetch_one(const MissingFile& file, HubTransfer& transfer) {
    const RemoteFile& remote = file.remote;
    const fs::path locks = options_.cache / ".locks" / repository_.filename();
    BATON_TRY_VOID(make_folder(options_.cache, locks));
    BATON_TRY(const FileLock lock, FileLock::acquire(locks / (file.blob + ".lock")));
    const fs::path blob = repository_ / "blobs" / file.blob;
    if (!is_there(blob)) {
      const fs::path incomplete = blob.string() + ".incomplete";
      BATON_TRY_VOID(
          http_download(remote.url, options_.token, incomplete, remote.size_bytes, [&](std::uint64_t received, std::uint64_t) {
            transfer.file_received = received;
            if (progress_) progress_(transfer);
          }));
      std::error_code error;
      if (auto same = check_against_etag(incomplete, remote.etag); !same) {
        if (same.error().code == ErrorCode::invalid_data) {
          fs::remove(incomplete, error);  // it would be continued, and stay wrong
          same.error().message += "; the file was removed: try again";
        }
        return fail(same.error().code, fmt::format("{}: {}", remote.url, same.error().message));
      }
      if (!is_checksum(remote.etag))
        log::warning("event=download_not_verified file={} reason=\"the endpoint announces no checksum of it, only its size\"",
                     log_value(file.name));
      fs::rename(incomplete, blob, error);
      if (error) return fail(ErrorCode::io, fmt::format("cannot write {}: {}", blob.string(), error.message()));
    } else if (std::error_code error; fs::file_size(blob, error) != remote.size_bytes) {
      return fail(ErrorCode::invalid_data,
                  fmt::format("{}: the endpoint announces {} bytes with the etag {}, and {} has another size: remove it",
                              remote.url, remote.size_bytes, remote.etag, blob.string()));
    }
    return link(snapshot() / file.name, blob, file.name);
  }

  Result<void> link(const fs::path& target, const fs::path& blob, std::string_view name) const {
    BATON_TRY_VOID(make_folder(options_.cache, target.parent_path()));
    fs::path up = "../..";
    for (const char c : name)
      if (c == '/') up /= "..";
    std::error_code error;
    fs::remove(target, error);  // a link that leads nowhere
    fs::create_symlink(up / "blobs" / blob.filename(), target, error);
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

tl::unexpected<Error> bad_status(const std::string& url, long status) {
  const std::string_view hint = status == 401 || status == 403
                                    ? " (private or gated: set HF_TOKEN or log in with `hf auth login`, "
                                      "and accept the model's conditions)"
                                : status == 404 ? " (there is no such model or revision)"
                                                : "";
  return fail(status == 404 ? ErrorCode::not_found : ErrorCode::unavailable,
              fmt::format("{}: HTTP status {}{}", url, status, hint));
}

/// Errors do not name the source yet.
Result<RemoteModel> read_model(const json::Value& info) {
  RemoteModel model;
  BATON_TRY(model.commit, json::get<std::string>(info, "sha"));
  if (!is_commit(model.commit)) return fail(ErrorCode::invalid_data, "'sha' is not a commit");
  BATON_TRY(const auto siblings, json::get<std::vector<json::Value>>(info, "siblings"));
  for (const json::Value& sibling : siblings) {
    BATON_TRY(std::string name, json::get<std::string>(sibling, "rfilename"));
    model.files.insert(std::move(name));
  }
  return model;
}

}  // namespace

Result<RemoteModel> remote_model_of(const std::string& url, const HttpReply& reply) {
  if (reply.status != 200) return bad_status(url, reply.status);
  const auto info = json::parse(reply.body, url);
  if (!info) return fail(ErrorCode::invalid_data, info.error().message);
  auto model = read_model(*info);
  if (!model) return fail(ErrorCode::invalid_data, fmt::format("{}: {}", url, model.error().message));
  return model;
}

bool names_linked_file(const HttpReply& reply) {
  return reply.headers.contains("x-linked-etag") && reply.headers.contains("x-linked-size");
}

Result<RemoteFile> remote_file_of(std::string url, const HttpReply& reply) {
  if (reply.status >= 400) return bad_status(url, reply.status);
  // Large files are redirected to another server; the first one knows their etag and size.
  const auto header = [&](const char* linked, const char* plain) -> std::string {
    for (const char* name : {linked, plain})
      if (const auto found = reply.headers.find(name); found != reply.headers.end()) return found->second;
    return "";
  };
  std::string etag = header("x-linked-etag", "etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  const std::string size_text = header("x-linked-size", "content-length");
  if (!is_safe_name(etag) || size_text.empty() || size_text.size() > 18 ||
      size_text.find_first_not_of("0123456789") != std::string::npos)
    return fail(ErrorCode::invalid_data, fmt::format("{}: the reply names no etag and size", url));
  return RemoteFile{std::move(url), std::move(etag), std::stoull(size_text)};
}

Result<fs::path> download(std::string_view model, std::string_view revision, const HubOptions& options,
                          const HubProgress& progress) {
  return Download(model, options, progress).run(revision);
}

}  // namespace baton::hub
