/// Base64, in which tokenizer files hold bytes.
#include "text/split/base64.h"

#include <cstdint>

#include "text/split/unicode.h"

namespace baton {

namespace {

int digit_of_base64(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t n_padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(n_padding);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int digit = digit_of_base64(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    bytes += static_cast<char>(static_cast<unsigned char>(bits >> n_bits));
  }
  return bytes;
}

std::optional<std::string> characters_of_base64(std::string_view text) {
  const std::optional<std::string> bytes = bytes_of_base64(text);
  if (!bytes) return std::nullopt;
  std::string characters;
  for (const char byte : *bytes) unicode::append_utf8(characters, unicode::character_of_byte(static_cast<unsigned char>(byte)));
  return characters;
}

}  // namespace baton
