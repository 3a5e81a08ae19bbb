/// Digests of API keys and the header that carries one (server/keys/api_keys.h).
#include "server/keys/api_keys.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Auth, reads_the_key_of_a_bearer_header) {
  EXPECT_EQ(bearer_key("Bearer first"), "first");
  EXPECT_EQ(bearer_key("bearer second "), "second ") << "a key is all that follows";
  for (const std::string_view wrong : {"", "Bearer", "Bearer ", "first", "Basic first"})
    EXPECT_FALSE(bearer_key(wrong)) << wrong;
}

TEST(Auth, compares_keys_by_their_digests) {
  const KeyDigest digest = digest_of("secret");
  EXPECT_TRUE(is_same_key(digest, digest_of("secret")));
  for (const std::string_view wrong : {"", "secre", "secrets", "Secret"})
    EXPECT_FALSE(is_same_key(digest, digest_of(wrong))) << wrong;
}

TEST(Auth, reads_the_digest_that_sha256sum_prints) {
  const std::string hex = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
  ASSERT_TRUE(digest_of_hex(hex));
  EXPECT_TRUE(is_same_key(*digest_of_hex(hex), digest_of("secret")));
  for (const std::string& wrong : {hex.substr(1), hex + "0", std::string(64, 'g'), std::string()})
    EXPECT_FALSE(digest_of_hex(wrong)) << wrong;
}

TEST(Auth, takes_the_key_of_either_header) {
  const auto given = [](HttpHeaders headers) {
    HttpRequest request;
    request.headers = std::move(headers);
    return authorization_of(request);
  };
  EXPECT_EQ(given({}), "");
  EXPECT_EQ(given({{"Authorization", "Bearer a"}}), "Bearer a");
  EXPECT_EQ(bearer_key(given({{"X-API-Key", "b"}})), "b");
  EXPECT_EQ(given({{"x-api-key", "b"}, {"Authorization", "Bearer a"}}), "Bearer a");
}

}  // namespace
}  // namespace baton
