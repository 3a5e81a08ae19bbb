/// Models by name: a folder, the cache that Hugging Face's programs share, or a download into that cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

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

/// From HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub; HF_ENDPOINT; HF_TOKEN; HF_HUB_OFFLINE or
/// TRANSFORMERS_OFFLINE.
HubOptions hub_options_from_environment();

/// Called while files are downloaded: the file's name, the bytes received and the total. On the caller's thread.
using HubProgress = std::function<void(std::string_view file, std::uint64_t received, std::uint64_t total)>;

/// The folder of `model` with config.json, tokenizer and, if wanted, weights: `model` itself if it is a folder, else the snapshot
/// of `revision` (a branch, a tag or a commit; "main") in the cache, else the same downloaded now. A complete snapshot
/// in the cache is used without asking the network. Interrupted downloads continue where they stopped. Errors name
/// what was tried: not_found, unavailable, invalid_data.
Result<std::filesystem::path> find_model(std::string_view model, std::string_view revision, const HubOptions& options,
                                         const HubProgress& progress);

}  // namespace baton
