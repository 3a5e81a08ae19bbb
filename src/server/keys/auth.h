/// API keys as digests, compared in constant time.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace baton {

/// SHA-256 of a key. Only digests are kept, so that neither a log nor a core file shows a key.
using KeyDigest = std::array<unsigned char, 32>;

KeyDigest digest_of(std::string_view key);
/// The digest of 64 hexadecimal digits; nullopt for anything else.
std::optional<KeyDigest> digest_of_hex(std::string_view hex);
/// Whether two digests are equal; the time does not depend on where they differ.
bool is_same_key(const KeyDigest& a, const KeyDigest& b);

/// KEY of the Authorization header "Bearer KEY"; nullopt without the scheme or the key.
std::optional<std::string_view> bearer_key(std::string_view authorization);

/// The Authorization header of a request, or its equal of an x-api-key header, with which clients of the Anthropic dialect
/// send their key; empty if there is neither.
std::string authorization_of(const HttpRequest& request);

}  // namespace baton
