/// Models by name: a folder, the cache that Hugging Face's programs share, or a download into that cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton {

/// Where models come from.
struct HubOptions {
  std::filesystem::path cache;  ///< holds models--ORG--NAME/{refs,blobs,snapshots}
  std::string endpoint;         ///< "https://huggingface.co"
  std::string token;            ///< sent to the endpoint as bearer; empty for none
  bool is_offline = false;      ///< never use the network
  bool wants_weights = true;    ///< else configuration, tokenizer and chat templates are enough
};

/// What Hugging Face's own library takes from the environment (docs/programs.md has the table): the cache and the token, by their
/// older names too, the token that `hf auth login` has saved, HF_ENDPOINT, HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE.
HubOptions hub_options_from_environment();

/// How far a download is.
struct HubTransfer {
  std::string_view file;
  int number = 0;  ///< of the file, from 1
  int n_files = 0;
  std::uint64_t file_received = 0;  ///< bytes of the file that are there
  std::uint64_t file_bytes = 0;
  std::uint64_t done_bytes = 0;   ///< of the files before it
  std::uint64_t total_bytes = 0;  ///< of the files known so far that were missing
};

/// Called while files are downloaded, on the caller's thread.
using HubProgress = std::function<void(const HubTransfer&)>;

/// The folder of `model` with config.json, tokenizer and, if wanted, weights: `model` itself if it is a folder, else
/// the snapshot of `revision` (a branch, a tag or a commit; "main") in the cache, else the same downloaded now. A
/// complete snapshot in the cache is used without asking the network. Interrupted downloads continue where they
/// stopped. Errors name what was tried: not_found, unavailable, invalid_data.
Result<std::filesystem::path> find_model(std::string_view model, std::string_view revision, const HubOptions& options,
                                         const HubProgress& progress);

/// The snapshot that `revision` of the model with this name (not a folder) stands for now: what the cache does not
/// have is downloaded. Offline, the snapshot in the cache, if it is complete. Errors: those of find_model.
Result<std::filesystem::path> pull_model(std::string_view model, std::string_view revision, const HubOptions& options,
                                         const HubProgress& progress);

/// A snapshot in the cache.
struct CachedModel {
  std::string name = {};  ///< ORG/NAME
  std::string commit = {};
  std::vector<std::string> revisions = {};  ///< branches and tags that stand for the commit, sorted
  std::filesystem::path snapshot = {};
  std::uint64_t size_bytes = 0;  ///< of its files
  std::string missing = {};      ///< what it needs to be complete, as "config.json", "weights", "2 of 3 shards"
};

/// The snapshots of models in `cache`, by name and commit. Empty where there is no such folder.
std::vector<CachedModel> list_cached_models(const std::filesystem::path& cache);

}  // namespace baton
