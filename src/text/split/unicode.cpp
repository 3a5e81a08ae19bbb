/// UTF-8 and the few properties of characters that tokenizers ask for.
#include "text/split/unicode.h"

#include <array>

#include <utf8proc.h>

namespace baton::unicode {

std::string to_utf8(char32_t code_point) {
  std::string out;
  append_utf8(out, code_point);
  return out;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Step step = decode_front(text);
    out += step.is_valid ? text.substr(0, step.n_bytes) : kReplacementUtf8;
    text.remove_prefix(step.n_bytes);
  }
  return out;
}

std::string_view last_character(std::string_view text) {
  std::size_t start = text.size();
  while (start > 0) {
    --start;
    if ((static_cast<unsigned char>(text[start]) & 0xC0) != 0x80) break;
  }
  return text.substr(start);
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || c == 0x20;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP || c == 0x85;
}

namespace {

struct Shift {
  char32_t first;
  char32_t last;
  char32_t lowercase_of_first;
};

// Capital letters that Unicode has had since version 16, which utf8proc does not know.
constexpr Shift kNewCapitals[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},     {0xA7CC, 0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CE, 0xA7CF},
    {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},    {0xA7DA, 0xA7DA, 0xA7DB}, {0xA7DC, 0xA7DC, 0x19B},
    {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB},
};

}  // namespace

void append_lowercase(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c));
    return;
  }
  if (c == 0x130) {  // the only letter whose lower case is two characters
    out += "i\u0307";
    return;
  }
  for (const Shift& shift : kNewCapitals)
    if (c >= shift.first && c <= shift.last) return append_utf8(out, shift.lowercase_of_first + (c - shift.first));
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

namespace {

// Bytes that are printable in Latin-1 stand for themselves; the others are numbered from U+0100 in their order.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::size_t kNumberOfOthers = 68;

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = stands_for_itself(byte) ? byte : next++;
  return characters;
}

constexpr std::array<unsigned char, kNumberOfOthers> make_others() {
  std::array<unsigned char, kNumberOfOthers> others{};
  std::size_t next = 0;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (!stands_for_itself(byte)) others[next++] = static_cast<unsigned char>(byte);
  return others;
}

constexpr std::array<char32_t, 256> kCharacterOfByte = make_characters();
constexpr std::array<unsigned char, kNumberOfOthers> kOthers = make_others();

}  // namespace

char32_t character_of_byte(unsigned char byte) { return kCharacterOfByte[byte]; }

std::optional<unsigned char> byte_of_character(char32_t code_point) {
  if (code_point < 0x100) {
    if (!stands_for_itself(static_cast<unsigned>(code_point))) return std::nullopt;
    return static_cast<unsigned char>(code_point);
  }
  if (code_point < 0x100 + kNumberOfOthers) return kOthers[code_point - 0x100];
  return std::nullopt;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    held_.clear();
    joined += bytes;
    bytes = joined;
  }
  while (!bytes.empty()) {
    const Step step = decode_front(bytes);
    if (step.is_cut_off) {
      held_ = bytes;
      return;
    }
    out += step.is_valid ? bytes.substr(0, step.n_bytes) : kReplacementUtf8;
    bytes.remove_prefix(step.n_bytes);
  }
}

void Utf8Stream::finish(std::string& out) {
  if (!held_.empty()) out += kReplacementUtf8;
  held_.clear();
}

}  // namespace baton::unicode
