/// Tests of base64.
#include "text/split/base64.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

// The test vectors of RFC 4648, section 10.
TEST(Base64, equals_the_vectors_of_the_rfc) {
  for (const auto& [text, bytes] : {std::pair("", ""),
                                    {"Zg==", "f"},
                                    {"Zm8=", "fo"},
                                    {"Zm9v", "foo"},
                                    {"Zm9vYg==", "foob"},
                                    {"Zm9vYmE=", "fooba"},
                                    {"Zm9vYmFy", "foobar"}})
    EXPECT_EQ(bytes_of_base64(text), bytes) << text;
  EXPECT_EQ(bytes_of_base64("+/8="), "\xfb\xff");
}

TEST(Base64, refuses_other_text) {
  for (const char* text : {"a", "ab", "abc", "a*==", "a===", "=abc", "ab=c", "abc\n"})
    EXPECT_EQ(bytes_of_base64(text), std::nullopt) << text;
}

TEST(Base64, gives_bytes_as_the_characters_of_gpt2) {
  EXPECT_EQ(characters_of_base64("/yA="), "ÿĠ");
  EXPECT_EQ(characters_of_base64(""), "");
  EXPECT_EQ(characters_of_base64("a*=="), std::nullopt);
}

}  // namespace
}  // namespace baton
