/// UTF-8, one character at a time; letters and digits of ASCII.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace baton::unicode {

/// Replaces bytes that are not a character.
inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

/// One step through UTF-8. A valid character has n_bytes 1 to 4. Otherwise n_bytes counts the bytes that one U+FFFD
/// stands for (the maximal subpart of an ill-formed sequence, Unicode 3.9), and is_cut_off says that the text ended
/// inside a character that could still have become valid.
struct Step {
  char32_t code_point = kReplacement;
  std::size_t n_bytes = 0;
  bool is_valid = false;
  bool is_cut_off = false;
};

/// The step at the front of `text`, which begins with a byte of at least 0x80.
Step decode_beyond_ascii(std::string_view text);
/// The step at the front of `text`, which must not be empty.
inline Step decode_front(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 0x80 ? Step{.code_point = first, .n_bytes = 1, .is_valid = true} : decode_beyond_ascii(text);
}

void append_utf8(std::string& out, char32_t code_point);
bool is_valid_utf8(std::string_view text);

}  // namespace baton::unicode

/// Bytes beyond ASCII are neither letters nor digits.
namespace baton::ascii {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

/// The value of a hexadecimal digit; -1 for another character.
constexpr int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char letter = lower(c);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/// Whether there are letters, digits and characters of `also` only.
constexpr bool consists_of(std::string_view text, std::string_view also) {
  return std::ranges::all_of(text, [&](char c) { return is_letter(c) || is_digit(c) || also.find(c) != also.npos; });
}

}  // namespace baton::ascii
