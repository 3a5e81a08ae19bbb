/// Which files a model consists of, and where the Hugging Face cache keeps them.
///
///     models--ORG--NAME/refs/<revision>       the commit it stands for, as text
///     models--ORG--NAME/blobs/<etag>          contents; <etag>.incomplete while they are downloaded
///     models--ORG--NAME/snapshots/<commit>/   the files by name, as links to ../../blobs/<etag>
///     .locks/models--ORG--NAME/<etag>.lock    held by the process that downloads the contents
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton::hub {

inline constexpr std::string_view kWeights = "model.safetensors";
inline constexpr std::string_view kIndex = "model.safetensors.index.json";

/// Names that come from outside and become part of a path: no separators, nothing hidden, nothing that leads upwards.
bool is_safe_name(std::string_view name);
/// NAME or ORG/NAME.
bool is_model_id(std::string_view model);
bool is_revision(std::string_view revision);
/// 40 hexadecimal digits.
bool is_commit(std::string_view text);

/// A file that exists, whatever chain of links leads to it.
bool is_there(const std::filesystem::path& path);

/// The names among `files` that Baton reads beside the weights, in the order of download: tokenizers last, because
/// where one of them is, the others are taken to be too.
std::vector<std::string> small_files_of(const std::set<std::string>& files);

/// The shards that an index names. Errors: invalid_data.
Result<std::set<std::string>> shards_of(const std::filesystem::path& index);

/// Whether a snapshot has the files of a model, or all files that its text side needs.
bool has_all_files(const std::filesystem::path& snapshot, bool wants_weights);

/// CACHE/models--ORG--NAME.
std::filesystem::path repository_of(const std::filesystem::path& cache, std::string_view model);

/// The commit that the cache knows for `revision`.
std::optional<std::string> cached_commit(const std::filesystem::path& repository, std::string_view revision);

}  // namespace baton::hub
