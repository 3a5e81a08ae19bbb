/// Compressed bodies of HTTP (RFC 9110, 8.4.1): gzip and deflate (RFC 1952, 1950) and zstd (RFC 8878, 9659).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace baton {

enum class ContentCoding { identity, gzip, deflate, zstd };

/// For Accept-Encoding.
inline constexpr std::string_view kContentCodings = "gzip, deflate, zstd";

/// What the value of a Content-Encoding header names, in any case; identity for an empty one. Errors (unsupported):
/// another coding, or several.
Result<ContentCoding> parse_content_coding(std::string_view header);

/// What a decoder may take.
struct DecodeLimits {
  std::size_t max_bytes = 0;  ///< of the decoded text
  /// Asked before the text takes `n` bytes in all; false: there is no room. Never for more than max_bytes.
  std::function<bool(std::size_t n)> has_room;
  std::function<bool()> is_cancelled;
};

/// The text that `bytes`, called `what`, hold. deflate is read with zlib's header or without. Memory beside the text:
/// under 10 MiB, as the windows of zstd are limited to the 8 MiB of RFC 9659. Errors: invalid_request (damaged, cut, or
/// something after the end), too_large, unavailable (no room, or no client waits for it).
Result<std::string> decode_content(ContentCoding coding, std::string_view bytes, std::string_view what,
                                   const DecodeLimits& limits);

}  // namespace baton
