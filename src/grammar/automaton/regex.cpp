/// A parser of regular expressions.
#include "grammar/automaton/regex.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/limits/stack_space.h"
#include "core/one_line.h"
#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/source_cursor.h"

namespace baton::grammar {

namespace {

/// What a part matches, by whether it must begin at the begin of the text and end at its end.
struct Anchored {
  std::optional<ExprId> at[2][2];
};

const CharRanges kDigits{{'0', '9'}};
const CharRanges kWordCharacters{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharRanges kSpaces{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                         {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharRanges kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  RegexParser(Expressions& expressions, std::string_view regex, WorkMeter& meter)
      : expressions_(expressions), source_(regex, message), meter_(meter), empty_(expressions.empty()) {}

  Result<Anchored> parse() {
    BATON_TRY(Anchored all, alternatives());
    if (!source_.rest.empty()) return source_.invalid("has a ')' without '('");
    return all;
  }

 private:
  static std::string message(std::string_view read, std::string_view what) {
    return fmt::format("the regular expression {}, at byte {}", what, read.size());
  }
  static Anchored free(ExprId expr) {
    Anchored result;
    result.at[0][0] = expr;
    return result;
  }
  static bool is_free(const Anchored& part) { return part.at[0][0] && !part.at[0][1] && !part.at[1][0] && !part.at[1][1]; }

  Result<Anchored> alternatives();
  Result<Anchored> sequence();
  Result<Anchored> join(const Anchored& a, const Anchored& b);
  Result<Anchored> atom();
  Result<Anchored> group();
  Result<Anchored> repeated(Anchored part);
  Result<std::optional<std::pair<int, int>>> bounds();
  Result<CharRanges> char_class();
  Result<CharRanges> class_item();
  Result<CharRanges> escape(bool in_class);
  Result<CharRanges> property(bool is_negated);
  Result<char32_t> unicode_escape();

  Expressions& expressions_;
  SourceCursor source_;
  WorkMeter& meter_;
  const ExprId empty_;
  StackSpace stack_;
};

Result<Anchored> RegexParser::alternatives() {
  if (!stack_.has_room(8192)) return source_.invalid("is nested too deep");
  std::vector<ExprId> parts[2][2];
  do {
    if (!meter_.spend(4)) return over_budget(meter_);
    BATON_TRY(const Anchored one, sequence());
    for (const int begin : {0, 1})
      for (const int end : {0, 1})
        if (one.at[begin][end]) parts[begin][end].push_back(*one.at[begin][end]);
  } while (source_.take("|"));
  Anchored all;
  for (const int begin : {0, 1})
    for (const int end : {0, 1})
      if (!parts[begin][end].empty()) all.at[begin][end] = expressions_.choice(parts[begin][end]);
  return all;
}

/// Parts without anchors become one sequence, however many they are: sequences of two inside of each other would be as
/// deep as the text is long.
Result<Anchored> RegexParser::sequence() {
  Anchored all = free(empty_);
  std::vector<ExprId> run;  // parts without anchors behind `all`
  const auto join_run = [&]() -> Result<void> {
    if (run.empty()) return {};
    BATON_TRY(all, join(all, free(expressions_.sequence(std::exchange(run, {})))));
    return {};
  };
  while (!source_.rest.empty() && source_.rest[0] != '|' && source_.rest[0] != ')') {
    if (!meter_.spend(4)) return over_budget(meter_);
    BATON_TRY(Anchored one, atom());
    BATON_TRY(one, repeated(std::move(one)));
    if (is_free(one)) {
      if (*one.at[0][0] != empty_) run.push_back(*one.at[0][0]);
      continue;
    }
    BATON_TRY_VOID(join_run());
    BATON_TRY(all, join(all, one));
  }
  BATON_TRY_VOID(join_run());
  return all;
}

Result<Anchored> RegexParser::join(const Anchored& a, const Anchored& b) {
  std::vector<ExprId> parts[2][2];
  for (const int begin : {0, 1})
    for (const int end : {0, 1})
      for (const int second_begin : {0, 1})
        for (const int second_end : {0, 1}) {
          const std::optional<ExprId> first = a.at[begin][end];
          const std::optional<ExprId> second = b.at[second_begin][second_end];
          if (!first || !second) continue;
          if ((end == 1 && *second != empty_) || (second_begin == 1 && *first != empty_))
            return source_.unsupported("an anchor inside of what it matches");
          const ExprId both = *first == empty_    ? *second
                              : *second == empty_ ? *first
                                                  : expressions_.sequence({*first, *second});
          parts[begin | second_begin][end | second_end].push_back(both);
        }
  Anchored all;
  for (const int begin : {0, 1})
    for (const int end : {0, 1})
      if (!parts[begin][end].empty()) all.at[begin][end] = expressions_.choice(parts[begin][end]);
  return all;
}

Result<Anchored> RegexParser::atom() {
  if (source_.take("^") || source_.take("\\A")) {
    Anchored result;
    result.at[1][0] = empty_;
    return result;
  }
  if (source_.take("$") || source_.take("\\z") || source_.take("\\Z")) {
    Anchored result;
    result.at[0][1] = empty_;
    return result;
  }
  if (source_.take("(")) return group();
  CharRanges characters;
  if (source_.take(".")) {
    characters = complement(kLineEnds);
  } else if (source_.take("[")) {
    BATON_TRY(characters, char_class());
  } else if (source_.take("\\")) {
    BATON_TRY(characters, escape(/*in_class=*/false));
  } else {
    if (std::string_view("*+?").find(source_.rest[0]) != std::string_view::npos) return source_.invalid("repeats nothing");
    const std::optional<char32_t> c = take_character(source_.rest);
    if (!c) return source_.invalid("is not valid UTF-8");
    characters = {{*c, *c}};
  }
  if (!meter_.spend(static_cast<std::int64_t>(characters.size()))) return over_budget(meter_);
  BATON_TRY(const ExprId expr, expressions_.characters(normalized(std::move(characters)), meter_));
  return free(expr);
}

Result<Anchored> RegexParser::group() {
  if (source_.take("?")) {
    if (source_.take("P<") ||
        (source_.rest.starts_with("<") && !source_.rest.starts_with("<=") && !source_.rest.starts_with("<!"))) {
      const std::size_t end = source_.rest.find('>');
      if (end == std::string_view::npos) return source_.invalid("has a group name without '>'");
      source_.rest.remove_prefix(end + 1);
    } else if (!source_.take(":")) {
      const bool looks = source_.rest.starts_with("=") || source_.rest.starts_with("!") || source_.rest.starts_with("<");
      return source_.unsupported(looks ? "look-around" : "flags or another extension behind '(?'");
    }
  }
  BATON_TRY(Anchored inside, alternatives());
  if (!source_.take(")")) return source_.invalid("has a '(' without ')'");
  return inside;
}

Result<std::optional<std::pair<int, int>>> RegexParser::bounds() {
  using Bounds = std::optional<std::pair<int, int>>;
  if (source_.take("*")) return Bounds({0, kUnlimited});
  if (source_.take("+")) return Bounds({1, kUnlimited});
  if (source_.take("?")) return Bounds({0, 1});
  const std::string_view before = source_.rest;
  if (!source_.take("{")) return Bounds();
  const std::optional<int> min = source_.take_count();
  std::optional<int> max = min;
  if (source_.take(",")) {
    max = source_.take_count();
    if (!max) max = kUnlimited;
  }
  if (!min || !source_.take("}")) {
    source_.rest = before;
    return source_.invalid("has a '{' that begins no repetition");
  }
  if (*max != kUnlimited && *max < *min) return source_.invalid("has a repetition whose bounds are in the wrong order");
  if (*min > kMaxRepeat || *max > kMaxRepeat) return source_.invalid(fmt::format("repeats more than {} times", kMaxRepeat));
  return Bounds({*min, *max});
}

Result<Anchored> RegexParser::repeated(Anchored part) {
  while (true) {
    BATON_TRY(const auto found, bounds());
    if (!found) return part;
    if (!meter_.spend(2)) return over_budget(meter_);
    if (!source_.take("?") && source_.rest.starts_with("+")) return source_.unsupported("a possessive repetition");
    if (!part.at[0][0] || part.at[0][1] || part.at[1][0] || part.at[1][1]) return source_.unsupported("a repeated anchor");
    part = free(expressions_.repeat(*part.at[0][0], found->first, found->second));
  }
}

Result<char32_t> RegexParser::unicode_escape() {
  if (!source_.take("{")) {
    BATON_TRY(const char32_t first, source_.take_hex(4));
    if (first < 0xD800 || first > 0xDBFF || !source_.take("\\u")) return first;
    BATON_TRY(const char32_t second, source_.take_hex(4));
    if (second < 0xDC00 || second > 0xDFFF) return source_.invalid("has half a surrogate pair");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }
  const std::size_t n_digits = source_.rest.find('}');
  if (n_digits == std::string_view::npos || n_digits == 0 || n_digits > 6)
    return source_.invalid("has no code point behind '\\u{'");
  BATON_TRY(const char32_t value, source_.take_hex(n_digits));
  source_.rest.remove_prefix(1);
  return value;
}

Result<CharRanges> RegexParser::property(bool is_negated) {
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

Result<CharRanges> RegexParser::escape(bool in_class) {
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
      return source_.invalid("has no letter behind '\\c'");
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

Result<CharRanges> RegexParser::class_item() {
  if (source_.take("\\")) return escape(/*in_class=*/true);
  if (source_.rest.starts_with("[:") || source_.rest.starts_with("&&") || source_.rest.starts_with("--"))
    return source_.unsupported(fmt::format("'{}' in a class", source_.rest.substr(0, 2)));
  const std::optional<char32_t> c = take_character(source_.rest);
  if (!c) return source_.invalid("is not valid UTF-8");
  return CharRanges{{*c, *c}};
}

Result<CharRanges> RegexParser::char_class() {
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

}  // namespace

Result<ExprId> parse_regex(Expressions& expressions, std::string_view regex, RegexUse use, WorkMeter& meter) {
  BATON_TRY(const Anchored all, RegexParser(expressions, regex, meter).parse());
  std::vector<ExprId> alternatives;
  BATON_TRY(const ExprId any, expressions.characters({{0, kLastCodePoint}}, meter));
  const ExprId any_text = expressions.repeat(any, 0, kUnlimited);
  for (const int begin : {0, 1})
    for (const int end : {0, 1}) {
      if (!all.at[begin][end]) continue;
      std::vector<ExprId> parts{*all.at[begin][end]};
      if (use == RegexUse::search && begin == 0) parts.insert(parts.begin(), any_text);
      if (use == RegexUse::search && end == 0) parts.push_back(any_text);
      alternatives.push_back(expressions.sequence(parts));
    }
  return expressions.choice(alternatives);
}

}  // namespace baton::grammar
