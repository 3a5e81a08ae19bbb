/// A parser of regular expressions.
#include "grammar/automaton/regex.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/limits/stack_space.h"
#include "core/one_line.h"
#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/regex_characters.h"
#include "grammar/automaton/source_cursor.h"

namespace baton::grammar {

namespace {

/// What a part matches, by whether it must begin at the begin of the text and end at its end.
struct Anchored {
  std::optional<ExprId> at[2][2];
};

/// A part of an expression: what it matches, or the number of a node where look-ahead is in it.
struct Part {
  Anchored plain = {};
  std::int32_t node = -1;
};

/// What look-ahead needs: what is in it is put together from the end to the front, because it looks at all that follows.
struct Node {
  enum class Kind : std::uint8_t { sequence, alternatives, ahead, ahead_not } kind;
  std::vector<Part> parts;
};

/// The texts from a place to the end.
struct Rest {
  std::optional<ExprId> anywhere = {};
  std::optional<ExprId> at_begin = {};  ///< where nothing stands in front of the place
  bool needs_begin = false;             ///< `anywhere` would be other texts: a '^' must stand in front
  bool is_end = false;                  ///< what follows the whole expression
};

const CharRanges kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  RegexParser(Expressions& expressions, std::string_view regex, RegexUse use, WorkMeter& meter)
      : expressions_(expressions),
        source_(regex, message),
        characters_(source_, meter),
        use_(use),
        meter_(meter),
        empty_(expressions.empty()) {}

  /// The texts.
  Result<ExprId> parse();

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

  Result<Part> alternatives();
  Result<Part> sequence();
  Result<Anchored> join(const Anchored& a, const Anchored& b);
  Result<Part> atom();
  Result<Part> group();
  Result<Part> look_ahead(bool is_negated);
  Result<Part> repeated(Part part);
  Result<Part> add_node(Node::Kind kind, std::vector<Part> parts);
  Result<Rest> in_front(const Part& part, const Rest& rest);
  Result<Rest> in_front(const Anchored& part, const Rest& rest);
  Result<Rest> looking(const Node& node, const Rest& rest);
  Result<std::optional<ExprId>> filtered(std::optional<ExprId> rest, ExprId seen, bool is_negated);
  Result<ExprId> whole_texts(const Part& all);
  Result<ExprId> any_text();
  Result<std::optional<std::pair<int, int>>> bounds();

  Expressions& expressions_;
  SourceCursor source_;
  RegexCharacters characters_;
  const RegexUse use_;
  WorkMeter& meter_;
  const ExprId empty_;
  StackSpace stack_;
  std::vector<Node> nodes_;
  std::optional<ExprId> any_text_;
};

Result<Part> RegexParser::add_node(Node::Kind kind, std::vector<Part> parts) {
  if (!meter_.write(sizeof(Node) + parts.size() * sizeof(Part))) return over_budget(meter_);
  nodes_.push_back({kind, std::move(parts)});
  return Part{.node = static_cast<std::int32_t>(nodes_.size() - 1)};
}

Result<Part> RegexParser::alternatives() {
  if (!stack_.has_room(8192)) return source_.invalid("is nested too deep");
  std::vector<ExprId> parts[2][2];
  std::vector<Part> looking;
  do {
    if (!meter_.spend(4)) return over_budget(meter_);
    BATON_TRY(Part one, sequence());
    if (one.node >= 0) looking.push_back(one);
    for (const int begin : {0, 1})
      for (const int end : {0, 1})
        if (one.plain.at[begin][end]) parts[begin][end].push_back(*one.plain.at[begin][end]);
  } while (source_.take("|"));
  Anchored all;
  for (const int begin : {0, 1})
    for (const int end : {0, 1})
      if (!parts[begin][end].empty()) all.at[begin][end] = expressions_.choice(parts[begin][end]);
  if (looking.empty()) return Part{.plain = all};
  looking.push_back({.plain = all});
  return add_node(Node::Kind::alternatives, std::move(looking));
}

/// Parts without anchors become one sequence, however many they are: sequences of two inside of each other would be as
/// deep as the text is long.
Result<Part> RegexParser::sequence() {
  std::vector<Part> looking;  // parts in front of `all`
  Anchored all = free(empty_);
  std::vector<ExprId> run;  // parts without anchors after `all`
  const auto join_run = [&]() -> Result<void> {
    if (run.empty()) return {};
    BATON_TRY(all, join(all, free(expressions_.sequence(std::exchange(run, {})))));
    return {};
  };
  while (!source_.rest.empty() && source_.rest[0] != '|' && source_.rest[0] != ')') {
    if (!meter_.spend(4)) return over_budget(meter_);
    BATON_TRY(Part part, atom());
    BATON_TRY(part, repeated(std::move(part)));
    if (part.node >= 0) {
      BATON_TRY_VOID(join_run());
      looking.push_back({.plain = std::exchange(all, free(empty_))});
      looking.push_back(std::move(part));
      continue;
    }
    const Anchored& one = part.plain;
    if (is_free(one)) {
      if (*one.at[0][0] != empty_) run.push_back(*one.at[0][0]);
      continue;
    }
    BATON_TRY_VOID(join_run());
    BATON_TRY(all, join(all, one));
  }
  BATON_TRY_VOID(join_run());
  if (looking.empty()) return Part{.plain = all};
  looking.push_back({.plain = all});
  return add_node(Node::Kind::sequence, std::move(looking));
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

Result<Part> RegexParser::atom() {
  if (source_.take("^") || source_.take("\\A")) {
    Part result;
    result.plain.at[1][0] = empty_;
    return result;
  }
  if (source_.take("$") || source_.take("\\z") || source_.take("\\Z")) {
    Part result;
    result.plain.at[0][1] = empty_;
    return result;
  }
  if (source_.take("(")) return group();
  CharRanges characters;
  if (source_.take(".")) {
    characters = complement(kLineEnds);
  } else if (source_.take("[")) {
    BATON_TRY(characters, characters_.char_class());
  } else if (source_.take("\\")) {
    BATON_TRY(characters, characters_.escape(/*in_class=*/false));
  } else {
    if (std::string_view("*+?").find(source_.rest[0]) != std::string_view::npos) return source_.invalid("repeats nothing");
    const std::optional<char32_t> c = take_character(source_.rest);
    if (!c) return source_.invalid("is not valid UTF-8");
    characters = {{*c, *c}};
  }
  if (!meter_.spend(static_cast<std::int64_t>(characters.size()))) return over_budget(meter_);
  BATON_TRY(const ExprId expr, expressions_.characters(normalized(std::move(characters)), meter_));
  return Part{.plain = free(expr)};
}

Result<Part> RegexParser::look_ahead(bool is_negated) {
  if (use_ == RegexUse::part) return source_.unsupported("look-ahead");
  BATON_TRY(Part inside, alternatives());
  if (!source_.take(")")) return source_.invalid("has a '(' without ')'");
  return add_node(is_negated ? Node::Kind::ahead_not : Node::Kind::ahead, {std::move(inside)});
}

Result<Part> RegexParser::group() {
  if (source_.take("?")) {
    if (source_.take("P<") ||
        (source_.rest.starts_with("<") && !source_.rest.starts_with("<=") && !source_.rest.starts_with("<!"))) {
      const std::size_t end = source_.rest.find('>');
      if (end == std::string_view::npos) return source_.invalid("has a group name without '>'");
      source_.rest.remove_prefix(end + 1);
    } else if (source_.take("=")) {
      return look_ahead(/*is_negated=*/false);
    } else if (source_.take("!")) {
      return look_ahead(/*is_negated=*/true);
    } else if (!source_.take(":")) {
      return source_.unsupported(source_.rest.starts_with("<") ? "look-behind" : "flags or another extension after '(?'");
    }
  }
  BATON_TRY(Part inside, alternatives());
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

Result<Part> RegexParser::repeated(Part part) {
  while (true) {
    BATON_TRY(const auto found, bounds());
    if (!found) return part;
    if (!meter_.spend(2)) return over_budget(meter_);
    if (!source_.take("?") && source_.rest.starts_with("+")) return source_.unsupported("a possessive repetition");
    if (part.node >= 0) {
      if (found->second != 1) return source_.unsupported("look-ahead in a repetition");
      if (found->first == 0) {
        BATON_TRY(part, add_node(Node::Kind::alternatives, {std::move(part), {.plain = free(empty_)}}));
      }
      continue;
    }
    const Anchored& one = part.plain;
    if (!one.at[0][0] || one.at[0][1] || one.at[1][0] || one.at[1][1]) return source_.unsupported("a repeated anchor");
    part.plain = free(expressions_.repeat(*one.at[0][0], found->first, found->second));
  }
}

Result<ExprId> RegexParser::any_text() {
  if (!any_text_) {
    BATON_TRY(const ExprId any, expressions_.characters({{0, kLastCodePoint}}, meter_));
    any_text_ = expressions_.repeat(any, 0, kUnlimited);
  }
  return *any_text_;
}

/// The texts that `part` and what follows it match.
Result<Rest> RegexParser::in_front(const Anchored& part, const Rest& rest) {
  std::vector<ExprId> anywhere[2];  // [whether the part must be at the begin]
  for (const int begin : {0, 1}) {
    if (part.at[begin][0] && rest.at_begin) {
      if (*part.at[begin][0] != empty_) return source_.unsupported("an anchor inside of what it matches");
      anywhere[1].push_back(*rest.at_begin);
    }
    if (part.at[begin][0] && rest.anywhere)
      anywhere[begin].push_back(*part.at[begin][0] == empty_ ? *rest.anywhere
                                                             : expressions_.sequence({*part.at[begin][0], *rest.anywhere}));
    if (!part.at[begin][1]) continue;
    if (!rest.is_end) return source_.unsupported("an anchor inside of what it matches");
    anywhere[begin].push_back(*part.at[begin][1]);
  }
  Rest all{.needs_begin = rest.needs_begin && (part.at[0][0] || part.at[0][1]),
           .is_end = rest.is_end && is_free(part) && *part.at[0][0] == empty_};
  if (!anywhere[0].empty()) all.anywhere = expressions_.choice(anywhere[0]);
  if (!anywhere[1].empty()) all.at_begin = expressions_.choice(anywhere[1]);
  return all;
}

/// Those of the texts `rest` that are `seen`, or not.
Result<std::optional<ExprId>> RegexParser::filtered(std::optional<ExprId> rest, ExprId seen, bool is_negated) {
  if (!rest) return rest;
  BATON_TRY(const Dfa texts, determinize(expressions_, *rest, meter_));
  BATON_TRY(const Dfa other, determinize(expressions_, seen, meter_));
  BATON_TRY(const Dfa both, combine(texts, other, is_negated ? DfaProduct::difference : DfaProduct::intersection, meter_));
  return std::optional(expressions_.automaton(both));
}

/// What of the rest the look-ahead allows.
Result<Rest> RegexParser::looking(const Node& node, const Rest& rest) {
  const bool is_negated = node.kind == Node::Kind::ahead_not;
  BATON_TRY(const ExprId any, any_text());
  BATON_TRY(const Rest ahead, in_front(node.parts[0], {.anywhere = any, .is_end = true}));
  if (ahead.needs_begin) return source_.unsupported("an anchor inside of look-ahead");
  const ExprId seen = ahead.anywhere.value_or(expressions_.nothing());
  Rest all;
  if (!ahead.at_begin) {
    BATON_TRY(all.anywhere, filtered(rest.anywhere, seen, is_negated));
    BATON_TRY(all.at_begin, filtered(rest.at_begin, seen, is_negated));
    all.needs_begin = rest.needs_begin;
    return all;
  }
  std::vector<ExprId> texts;
  for (const std::optional<ExprId>& one : {rest.anywhere, rest.at_begin})
    if (one) texts.push_back(*one);
  BATON_TRY(all.at_begin, filtered(expressions_.choice(texts), expressions_.choice({seen, *ahead.at_begin}), is_negated));
  all.needs_begin = true;
  return all;
}

Result<Rest> RegexParser::in_front(const Part& part, const Rest& rest) {
  if (!stack_.has_room(8192)) return source_.invalid("is nested too deep");
  if (!meter_.spend(8)) return over_budget(meter_);
  if (part.node < 0) return in_front(part.plain, rest);
  const Node& node = nodes_[static_cast<std::size_t>(part.node)];
  if (node.kind == Node::Kind::sequence) {
    Rest all = rest;
    for (std::size_t i = node.parts.size(); i-- > 0;) {
      BATON_TRY(all, in_front(node.parts[i], all));
    }
    return all;
  }
  if (node.kind == Node::Kind::alternatives) {
    std::vector<ExprId> anywhere;
    std::vector<ExprId> at_begin;
    bool needs_begin = false;
    for (const Part& one : node.parts) {
      BATON_TRY(const Rest texts, in_front(one, rest));
      if (texts.anywhere) anywhere.push_back(*texts.anywhere);
      if (texts.at_begin) at_begin.push_back(*texts.at_begin);
      needs_begin = needs_begin || texts.needs_begin;
    }
    Rest all{.needs_begin = needs_begin};
    if (!anywhere.empty()) all.anywhere = expressions_.choice(anywhere);
    if (!at_begin.empty()) all.at_begin = expressions_.choice(at_begin);
    return all;
  }
  return looking(node, rest);
}

/// The texts of an expression with look-ahead.
Result<ExprId> RegexParser::whole_texts(const Part& all) {
  BATON_TRY(const ExprId any, any_text());
  BATON_TRY(const Rest texts, in_front(all, {.anywhere = use_ == RegexUse::search ? any : empty_, .is_end = true}));
  if (texts.needs_begin && use_ == RegexUse::search) return source_.unsupported("an anchor inside of look-ahead");
  std::vector<ExprId> alternatives;
  if (texts.at_begin) alternatives.push_back(*texts.at_begin);
  if (texts.anywhere)
    alternatives.push_back(use_ == RegexUse::search ? expressions_.sequence({any, *texts.anywhere}) : *texts.anywhere);
  return expressions_.choice(alternatives);
}

Result<ExprId> RegexParser::parse() {
  BATON_TRY(const Part all, alternatives());
  if (!source_.rest.empty()) return source_.invalid("has a ')' without '('");
  if (all.node >= 0) return whole_texts(all);
  BATON_TRY(const ExprId any, any_text());
  std::vector<ExprId> alternatives;
  for (const int begin : {0, 1})
    for (const int end : {0, 1}) {
      if (!all.plain.at[begin][end]) continue;
      std::vector<ExprId> parts{*all.plain.at[begin][end]};
      if (use_ == RegexUse::search && begin == 0) parts.insert(parts.begin(), any);
      if (use_ == RegexUse::search && end == 0) parts.push_back(any);
      alternatives.push_back(expressions_.sequence(parts));
    }
  return expressions_.choice(alternatives);
}

}  // namespace

Result<ExprId> parse_regex(Expressions& expressions, std::string_view regex, RegexUse use, WorkMeter& meter) {
  return RegexParser(expressions, regex, use, meter).parse();
}

}  // namespace baton::grammar
