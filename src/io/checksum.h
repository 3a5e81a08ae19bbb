/// Checksums of downloaded files, and of bytes that may be damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
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

/// A 64-bit checksum of `bytes` that depends on `seed`. Bytes that differ in one aligned run of 8 have different checksums; any
/// other two texts have equal ones with a probability of about 2^-64. It finds damage, not forgery: it is not cryptographic. The
/// same on every machine.
std::uint64_t damage_checksum(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace baton
