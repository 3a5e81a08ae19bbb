/// Digests of keys, and the header that carries a key.
#include "server/keys/auth.h"

#include <cstddef>

#include <openssl/crypto.h>
#include <openssl/sha.h>

namespace baton {
namespace {

constexpr std::string_view kScheme = "bearer ";

bool has_scheme(std::string_view authorization) {
  return authorization.size() > kScheme.size() && equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme);
}

}  // namespace

KeyDigest digest_of(std::string_view key) {
  KeyDigest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::optional<KeyDigest> digest_of_hex(std::string_view hex) {
  KeyDigest digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return digest;
}

bool is_same_key(const KeyDigest& a, const KeyDigest& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

std::optional<std::string_view> bearer_key(std::string_view authorization) {
  if (!has_scheme(authorization)) return std::nullopt;
  return authorization.substr(kScheme.size());
}

std::string authorization_of(const HttpRequest& request) {
  const std::string_view given = request.header("authorization");
  const std::string_view key = request.header("x-api-key");
  if (!given.empty() || key.empty()) return std::string(given);
  return std::string(kScheme) + std::string(key);
}

}  // namespace baton
