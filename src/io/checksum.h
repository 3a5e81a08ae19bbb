/// Checksums of downloaded files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"

namespace baton {

/// The SHA-256 of a file's bytes, as 64 hexadecimal digits. Errors: not_found, io.
Result<std::string> sha256_of_file(const std::filesystem::path& path);

/// The SHA-256 of a text, likewise. Errors: internal.
Result<std::string> sha256_of_text(std::string_view text);

/// The number under which git stores a file: SHA-1 of "blob SIZE", a NUL byte and the bytes, as 40 hexadecimal digits.
Result<std::string> git_blob_of_file(const std::filesystem::path& path);

/// Whether an etag is a checksum of the file's bytes: a SHA-256 or a git blob, in small hexadecimal digits.
bool is_checksum(std::string_view etag);

/// Compares a file with the etag under which a hub announces it: a SHA-256 (large files), a git blob (small ones), or
/// neither, which says nothing about the bytes. Errors: invalid_data with both sums; those of the sums.
Result<void> check_against_etag(const std::filesystem::path& path, std::string_view etag);

}  // namespace baton
