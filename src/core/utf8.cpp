/// UTF-8, one character at a time.
#include "core/utf8.h"

namespace baton::unicode {

Step decode_beyond_ascii(std::string_view text) {
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte_at(0);
  // The second byte's range is narrower where a wider one would allow overlong forms, surrogates or values over
  // U+10FFFF.
  std::size_t n_bytes = 0;
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    n_bytes = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    n_bytes = 3;
    if (first == 0xE0) second_low = 0xA0;
    if (first == 0xED) second_high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    n_bytes = 4;
    if (first == 0xF0) second_low = 0x90;
    if (first == 0xF4) second_high = 0x8F;
  } else {
    return Step{.n_bytes = 1};
  }

  char32_t code_point = first & (0x7Fu >> n_bytes);
  for (std::size_t i = 1; i < n_bytes; ++i) {
    if (i == text.size()) return Step{.n_bytes = i, .is_cut_off = true};
    const unsigned char byte = byte_at(i);
    const unsigned char low = i == 1 ? second_low : 0x80;
    const unsigned char high = i == 1 ? second_high : 0xBF;
    if (byte < low || byte > high) return Step{.n_bytes = i};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return Step{.code_point = code_point, .n_bytes = n_bytes, .is_valid = true};
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Step step = decode_front(text);
    if (!step.is_valid) return false;
    text.remove_prefix(step.n_bytes);
  }
  return true;
}

}  // namespace baton::unicode
