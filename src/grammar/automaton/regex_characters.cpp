/// A parser of the characters and classes of regular expressions.
#include "grammar/automaton/regex_characters.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/one_line.h"
#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/dfa.h"

namespace baton::grammar {

namespace {

const CharRanges kDigits{{'0', '9'}};
const CharRanges kWordCharacters{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharRanges kSpaces{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                         {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

}  // namespace

Result<char32_t> RegexCharacters::unicode_escape() {
  if (!source_.take("{")) {
    BATON_TRY(const char32_t first, source_.take_hex(4));
    if (first < 0xD800 || first > 0xDBFF || !source_.take("\\u")) return first;
    BATON_TRY(const char32_t second, source_.take_hex(4));
    if (second < 0xDC00 || second > 0xDFFF) return source_.invalid("has half a surrogate pair");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }
  const std::size_t n_digits = source_.rest.find('}');
  if (n_digits == std::string_view::npos || n_digits == 0 || n_digits > 6)
    return source_.invalid("has no code point after '\\u{'");
  BATON_TRY(const char32_t value, source_.take_hex(n_digits));
  source_.rest.remove_prefix(1);
  return value;
}

Result<CharRanges> RegexCharacters::property(bool is_negated) {
  std::string_view name = source_.rest.substr(0, 1);
  if (source_.take("{")) {
    const std::size_t end = source_.rest.find('}');
    if (end == std::string_view::npos) return source_.invalid("has a '\\p{' without '}'");
    name = source_.rest.substr(0, end);
    source_.rest.remove_prefix(end + 1);
    for (const std::string_view prefix : {"General_Category=", "gc="})
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  } else if (!source_.rest.empty()) {
    source_.rest.remove_prefix(1);
  }
  std::optional<CharRanges> ranges = category_ranges(name);
  if (!ranges) return source_.unsupported(fmt::format("the property '{}'", one_line(name, kMaxQuotedBytes)));
  if (!meter_.spend(static_cast<std::int64_t>(ranges->size()))) return over_budget(meter_);
  return is_negated ? complement(std::move(*ranges)) : std::move(*ranges);
}

Result<CharRanges> RegexCharacters::escape(bool in_class) {
  if (source_.rest.empty()) return source_.invalid("ends with a backslash");
  const auto one = [](char32_t c) { return CharRanges{{c, c}}; };
  const std::optional<char32_t> c = take_character(source_.rest);
  if (!c) return source_.invalid("is not valid UTF-8");
  switch (*c) {
    case 'd': return kDigits;
    case 'D': return complement(kDigits);
    case 'w': return kWordCharacters;
    case 'W': return complement(kWordCharacters);
    case 's': return kSpaces;
    case 'S': return complement(kSpaces);
    case 't': return one('\t');
    case 'n': return one('\n');
    case 'r': return one('\r');
    case 'f': return one('\f');
    case 'v': return one('\v');
    case '0': return one('\0');
    case 'b':
      if (in_class) return one('\b');
      return source_.unsupported("a word boundary");
    case 'B': return source_.unsupported("a word boundary");
    case 'k': return source_.unsupported("a back reference");
    case 'p': return property(false);
    case 'P': return property(true);
    case 'c':
      if (!source_.rest.empty() &&
          std::string_view("abcdefghijklmnopqrstuvwxyz").find(source_.rest[0] | 0x20) != std::string_view::npos) {
        const auto control = static_cast<char32_t>(source_.rest[0] & 0x1f);
        source_.rest.remove_prefix(1);
        return one(control);
      }
      return source_.invalid("has no letter after '\\c'");
    case 'x': {
      BATON_TRY(const char32_t value, source_.take_hex(2));
      return one(value);
    }
    case 'u': {
      BATON_TRY(const char32_t value, unicode_escape());
      return one(value);
    }
    default: break;
  }
  if (*c >= '1' && *c <= '9') return source_.unsupported("a back reference");
  if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z'))
    return source_.unsupported(fmt::format("the escape '\\{}'", static_cast<char>(*c)));
  return one(*c);
}

Result<CharRanges> RegexCharacters::class_item() {
  if (source_.take("\\")) return escape(/*in_class=*/true);
  if (source_.rest.starts_with("[:") || source_.rest.starts_with("&&") || source_.rest.starts_with("--"))
    return source_.unsupported(fmt::format("'{}' in a class", source_.rest.substr(0, 2)));
  const std::optional<char32_t> c = take_character(source_.rest);
  if (!c) return source_.invalid("is not valid UTF-8");
  return CharRanges{{*c, *c}};
}

Result<CharRanges> RegexCharacters::char_class() {
  const bool is_negated = source_.take("^");
  HeldBytes held(meter_);
  CharRanges all;
  while (!source_.take("]")) {
    if (source_.rest.empty()) return source_.invalid("has a '[' without ']'");
    BATON_TRY(CharRanges item, class_item());
    // The list is sorted in the end, and is there twice when it grows.
    if (!meter_.spend(2 + static_cast<std::int64_t>(item.size())) || !held.add(3 * item.size() * sizeof(item[0])))
      return over_budget(meter_);
    if (source_.rest.size() >= 2 && source_.rest[0] == '-' && source_.rest[1] != ']' && item.size() == 1 &&
        item[0].first == item[0].second) {
      source_.rest.remove_prefix(1);
      BATON_TRY(const CharRanges last, class_item());
      if (last.size() != 1 || last[0].first != last[0].second || last[0].first < item[0].first)
        return source_.invalid("has a range whose end is before its begin, or no character");
      item[0].second = last[0].first;
    }
    all.insert(all.end(), item.begin(), item.end());
  }
  return is_negated ? complement(std::move(all)) : normalized(std::move(all));
}

}  // namespace baton::grammar
