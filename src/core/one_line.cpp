/// Escapes and shortens text.
#include "core/one_line.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/utf8.h"

namespace baton {
namespace {

/// The bytes of the character at the beginning of `text`; 0 if it is not UTF-8 or a control character.
std::size_t printable_bytes(std::string_view text) {
  const unicode::Step step = unicode::decode_front(text);
  const char32_t c = step.code_point;
  const bool is_control = c < 0x20 || (c >= 0x7f && c < 0xa0);
  return step.is_valid && !is_control ? step.n_bytes : 0;
}

/// The largest number of bytes up to `size` that does not cut a character of valid UTF-8.
std::size_t cut_before(std::string_view text, std::size_t size) {
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0U) == 0x80U) --size;
  return size;
}

}  // namespace

std::string one_line(std::string_view text, std::size_t max_bytes) {
  constexpr std::string_view kGap = " ... ";
  std::string line;
  while (!text.empty()) {
    const std::size_t size = printable_bytes(text);
    if (size > 0) {
      line += text.substr(0, size);
    } else {
      const char c = text[0];
      line += c == '\n'   ? "\\n"
              : c == '\r' ? "\\r"
              : c == '\t' ? "\\t"
                          : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(std::max<std::size_t>(1, size));
  }
  if (line.size() <= max_bytes) return line;
  const std::size_t n_end = (max_bytes - kGap.size()) / 3;
  const std::size_t begin = cut_before(line, max_bytes - kGap.size() - n_end);
  const std::size_t end = cut_before(line, line.size() - n_end + 3);  // not longer for a character of four bytes
  return line.substr(0, begin).append(kGap).append(line.substr(end));
}

std::string log_value(std::string_view text) {
  const std::string line = one_line(text, kMaxMessageBytes);
  const bool is_word = !text.empty() && line == text && line.find_first_of(" \"\\=") == std::string::npos;
  if (is_word) return line;
  std::string value = "\"";
  for (const char c : std::string_view(text.size() > kMaxMessageBytes ? std::string_view(line) : text)) {
    if (c == '"' || c == '\\') value += '\\';
    value += c;
  }
  return one_line(value + "\"", 2 * kMaxMessageBytes);
}

std::string plural(std::int64_t number, std::string_view noun) { return std::string(noun) + (number == 1 ? "" : "s"); }

std::string counted(std::int64_t number, std::string_view noun) { return std::to_string(number) + " " + plural(number, noun); }

}  // namespace baton
