#include "core/utf8.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Ascii, letters_and_digits_are_those_of_ascii) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    EXPECT_EQ(ascii::is_digit(c), byte >= 48 && byte <= 57) << byte;
    EXPECT_EQ(ascii::is_letter(c), (byte >= 65 && byte <= 90) || (byte >= 97 && byte <= 122)) << byte;
    EXPECT_EQ(ascii::lower(c), static_cast<char>(byte >= 65 && byte <= 90 ? byte + 32 : byte)) << byte;
    EXPECT_EQ(ascii::consists_of({&c, 1}, "-_"), ascii::is_letter(c) || ascii::is_digit(c) || c == '-' || c == '_') << byte;
  }
  EXPECT_TRUE(ascii::consists_of("", ""));
  EXPECT_FALSE(ascii::consists_of("a b", ""));
}

TEST(Ascii, hexadecimal_digits_have_values_in_both_cases) {
  constexpr std::string_view kLower = "0123456789abcdef", kUpper = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto value = kLower.find(c) != kLower.npos ? kLower.find(c) : kUpper.find(c);
    EXPECT_EQ(ascii::hex_digit(c), value == kUpper.npos ? -1 : static_cast<int>(value)) << byte;
  }
}

}  // namespace
}  // namespace baton
