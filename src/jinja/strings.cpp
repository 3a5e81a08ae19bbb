/// Python's str on UTF-8.
#include "jinja/strings.h"

#include <locale.h>
#include <string.h>
#include <wctype.h>

#include <algorithm>

namespace baton::jinja {
namespace {

/// The C library's Unicode tables; a null locale (ASCII only) where it has none.
locale_t unicode_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

char32_t to_upper(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return unicode_locale() ? static_cast<char32_t>(towupper_l(static_cast<wint_t>(c), unicode_locale())) : c;
}
char32_t to_lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return unicode_locale() ? static_cast<char32_t>(towlower_l(static_cast<wint_t>(c), unicode_locale())) : c;
}

void append_upper(std::string& text, char32_t c) {
  if (c == U'ß')
    text += "SS";
  else
    append_utf8(text, to_upper(c));
}

template <class Change>
std::string map_characters(std::string_view text, Change change) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) change(result, char_at(text, i));
  return result;
}

}  // namespace

char32_t char_at(std::string_view text, std::size_t at) { return unicode::decode_front(text.substr(at)).code_point; }

std::size_t char_size(std::string_view text, std::size_t at) {
  const unicode::Step step = unicode::decode_front(text.substr(at));
  return step.is_valid ? step.n_bytes : 1;
}

bool is_space(char32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_space_at(std::string_view text, std::size_t at) { return is_space(char_at(text, at)); }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  if (is_space(c) || c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || (c >= 0xE000 && c < 0xF900)) return false;
  if ((c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF) return false;
  return c < 0x80 || unicode_locale() == nullptr || iswprint_l(static_cast<wint_t>(c), unicode_locale()) != 0;
}

bool is_alphabetic(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return unicode_locale() != nullptr && iswalpha_l(static_cast<wint_t>(c), unicode_locale()) != 0;
}
bool is_upper(char32_t c) { return to_lower(c) != c; }
bool is_lower(char32_t c) { return to_upper(c) != c || c == U'ß'; }

std::size_t length(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) ++n;
  return n;
}

std::vector<std::size_t> offsets(std::string_view text) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) result.push_back(i);
  result.push_back(text.size());
  return result;
}

namespace {
template <class Removed>
std::string_view strip_if(std::string_view text, bool left, bool right, Removed removed) {
  std::size_t begin = 0, end = text.size();
  if (left)
    while (begin < end && removed(char_at(text, begin))) begin += char_size(text, begin);
  while (right && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    const std::string_view head = text.substr(0, end);
    if (last + char_size(head, last) != end) last = end - 1;  // stray continuation bytes count one by one
    if (!removed(char_at(head, last))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}
}  // namespace

std::string_view strip(std::string_view text, bool left, bool right) {
  return strip_if(text, left, right, [](char32_t c) { return is_space(c); });
}

std::string_view strip(std::string_view text, std::string_view set, bool left, bool right) {
  std::vector<char32_t> members;
  for (std::size_t i = 0; i < set.size(); i += char_size(set, i)) members.push_back(char_at(set, i));
  std::sort(members.begin(), members.end());
  return strip_if(text, left, right, [&](char32_t c) { return std::binary_search(members.begin(), members.end(), c); });
}

std::string_view beginning(std::string_view text, std::size_t n_bytes) {
  if (text.size() <= n_bytes) return text;
  while (n_bytes > 0 && (static_cast<unsigned char>(text[n_bytes]) & 0xC0) == 0x80) --n_bytes;
  return text.substr(0, n_bytes);
}

std::size_t find_first(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());  // two-way: linear
  return found == nullptr ? std::string_view::npos : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

namespace {

void split_at_spaces(std::string_view text, std::int64_t most, Parts& out) {
  text = strip(text, true, false);
  for (std::int64_t n_cuts = 0; !text.empty(); ++n_cuts) {
    if (n_cuts == most) {
      out.add(text);
      return;
    }
    std::size_t end = 0;
    while (end < text.size() && !is_space_at(text, end)) end += char_size(text, end);
    if (!out.add(text.substr(0, end))) return;
    text = strip(text.substr(end), true, false);
  }
}

}  // namespace

void split(std::string_view text, std::optional<std::string_view> separator, std::int64_t most, Parts& out) {
  if (!separator) return split_at_spaces(text, most, out);
  std::size_t begin = 0;
  for (std::int64_t n_cuts = 0; n_cuts != most; ++n_cuts) {
    const std::size_t at = find_first(text, *separator, begin);
    if (at == std::string_view::npos) break;
    if (!out.add(text.substr(begin, at - begin))) return;
    begin = at + separator->size();
  }
  out.add(text.substr(begin));
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  Parts all;
  split(text, separator, -1, all);
  return std::move(all.parts);
}

void split_lines(std::string_view text, Parts& out) {
  const auto is_line_end = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t next = i + char_size(text, i);
    if (is_line_end(char_at(text, i))) {
      if (text[i] == '\r' && next < text.size() && text[next] == '\n') ++next;
      if (!out.add(text.substr(begin, i - begin))) return;
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) out.add(text.substr(begin));
}

std::string upper(std::string_view text) { return map_characters(text, append_upper); }
std::string lower(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) { append_utf8(out, to_lower(c)); });
}
std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text, [&](std::string& out, char32_t c) {
    append_utf8(out, first ? to_upper(c) : to_lower(c));
    first = false;
  });
}
std::string title(std::string_view text) {
  bool in_word = false;
  return map_characters(text, [&](std::string& out, char32_t c) {
    append_utf8(out, in_word ? to_lower(c) : to_upper(c));
    in_word = is_alphabetic(c);
  });
}
std::size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return length(text) + 1;
  std::size_t n = 0;
  for (std::size_t at = 0; (at = find_first(text, part, at)) != std::string_view::npos; at += part.size()) ++n;
  return n;
}

std::string replace(std::string_view text, std::string_view old_part, std::string_view new_part, std::int64_t most) {
  std::string result;
  std::int64_t done = 0;
  const auto may_replace = [&] { return most < 0 || done < most; };
  if (old_part.empty()) {
    for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) {
      if (may_replace()) {
        result += new_part;
        ++done;
      }
      result += text.substr(i, char_size(text, i));
    }
    if (may_replace()) result += new_part;
    return result;
  }
  std::size_t begin = 0;
  for (std::size_t at; may_replace() && (at = find_first(text, old_part, begin)) != std::string_view::npos;
       begin = at + old_part.size()) {
    result += text.substr(begin, at - begin);
    result += new_part;
    ++done;
  }
  result += text.substr(begin);
  return result;
}

}  // namespace baton::jinja
