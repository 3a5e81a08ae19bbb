/// Comparing keys in constant time.
#include "server/auth.h"

#include <algorithm>

#include <openssl/crypto.h>

namespace baton {
namespace {

constexpr std::string_view kScheme = "bearer ";

bool has_scheme(std::string_view authorization) {
  return authorization.size() > kScheme.size() &&
         std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme,
                            [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

}  // namespace

bool is_authorized(std::string_view authorization, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  if (!has_scheme(authorization)) return false;
  const std::string_view token = authorization.substr(kScheme.size());
  bool is_known = false;
  for (const std::string& key : keys)
    is_known |= key.size() == token.size() && CRYPTO_memcmp(key.data(), token.data(), key.size()) == 0;
  return is_known;
}

}  // namespace baton
