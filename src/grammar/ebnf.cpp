/// A parser of grammars in GBNF and Lark.
#include "grammar/ebnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/stack_space.h"
#include "grammar/char_ranges.h"
#include "grammar/regex.h"

namespace baton::grammar {

namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class EbnfParser {
 public:
  EbnfParser(Expressions& expressions, std::string_view text, WorkMeter& meter)
      : expressions_(expressions), text_(text), rest_(text), meter_(meter) {}

  Result<RuleId> parse();

 private:
  tl::unexpected<Error> error(ErrorCode code, std::string_view what) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(text_.size() - rest_.size());
    return fail(code, fmt::format("line {} of the grammar {}", 1 + std::count(text_.begin(), end, '\n'), what));
  }
  tl::unexpected<Error> invalid(std::string_view what) const { return error(ErrorCode::invalid_request, what); }
  tl::unexpected<Error> unsupported(std::string_view what) const {
    return error(ErrorCode::unsupported, fmt::format("has {}, which is not supported", what));
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// Passes over spaces, line ends and comments.
  void skip();
  std::string_view take_name();
  /// Whether a definition begins here; its name and sign are taken if so.
  std::optional<std::string_view> take_definition();
  bool begins_definition();
  RuleId rule_of(std::string_view name);

  Result<ExprId> alternatives();
  Result<ExprId> sequence();
  Result<ExprId> item();
  Result<ExprId> postfix(ExprId part);
  Result<std::string> literal(char quote);
  Result<char32_t> escape();
  Result<CharRanges> char_class();
  Result<ExprId> regex();

  Expressions& expressions_;
  const std::string_view text_;
  std::string_view rest_;
  WorkMeter& meter_;
  bool is_lark_ = false;
  std::map<std::string, RuleId, std::less<>> rules_;
  StackSpace stack_;
};

void EbnfParser::skip() {
  while (!rest_.empty()) {
    const char c = rest_[0];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      rest_.remove_prefix(1);
    } else if (c == '#' || (is_lark_ && rest_.starts_with("//"))) {
      rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
    } else {
      return;
    }
  }
}

std::string_view EbnfParser::take_name() {
  const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name_character);
  const std::string_view name = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
  rest_.remove_prefix(name.size());
  return name;
}

std::optional<std::string_view> EbnfParser::take_definition() {
  const std::string_view before = rest_;
  if (rest_.starts_with("?") || rest_.starts_with("!")) rest_.remove_prefix(1);  // how Lark shapes its tree
  const std::string_view name = take_name();
  while (rest_.starts_with(" ") || rest_.starts_with("\t")) rest_.remove_prefix(1);
  if (!name.empty() && (take("::=") || take(":"))) return name;
  rest_ = before;
  return std::nullopt;
}

bool EbnfParser::begins_definition() {
  const std::string_view before = rest_;
  const bool is_one = take_definition().has_value();
  rest_ = before;
  return is_one;
}

RuleId EbnfParser::rule_of(std::string_view name) {
  const auto known = rules_.find(name);
  if (known != rules_.end()) return known->second;
  return rules_.emplace(std::string(name), expressions_.add_rule(std::string(name))).first->second;
}

Result<char32_t> EbnfParser::escape() {
  if (rest_.empty()) return invalid("ends with a backslash");
  const char c = rest_[0];
  rest_.remove_prefix(1);
  const auto hex = [&](std::size_t n_digits) -> Result<char32_t> {
    char32_t value = 0;
    for (std::size_t i = 0; i < n_digits; ++i) {
      const auto digit = rest_.empty() ? std::string_view::npos : std::string_view("0123456789abcdef").find(rest_[0] | 0x20);
      if (digit == std::string_view::npos) return invalid("has an escape without its hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit);
      rest_.remove_prefix(1);
    }
    if (value > kLastCodePoint) return invalid("has a code point over U+10FFFF");
    return value;
  };
  switch (c) {
    case 'n': return U'\n';
    case 'r': return U'\r';
    case 't': return U'\t';
    case 'f': return U'\f';
    case 'b': return U'\b';
    case 'x': return hex(2);
    case 'u': return hex(4);
    case 'U': return hex(8);
    default: break;
  }
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
    return unsupported(fmt::format("the escape '\\{}'", c));
  return static_cast<char32_t>(static_cast<unsigned char>(c));
}

/// The texts of a literal as code points, so that \xE9 is the character U+00E9.
Result<std::string> EbnfParser::literal(char quote) {
  std::string bytes;
  while (!rest_.empty() && rest_[0] != quote) {
    if (!meter_.spend(1)) return over_budget(meter_);
    if (rest_[0] == '\n') return invalid("ends inside a literal");
    if (!take("\\")) {
      bytes.push_back(rest_[0]);
      rest_.remove_prefix(1);
      continue;
    }
    BATON_TRY(const char32_t c, escape());
    append_utf8(bytes, c);
  }
  if (!take(std::string_view(&quote, 1))) return invalid("has a literal without its end");
  if (is_lark_ && rest_.starts_with("i")) return unsupported("a literal with flags");
  return bytes;
}

Result<CharRanges> EbnfParser::char_class() {
  const bool is_negated = take("^");
  CharRanges all;
  const auto one = [&]() -> Result<char32_t> {
    if (take("\\")) return escape();
    const std::optional<char32_t> c = take_character(rest_);
    if (!c) return invalid("is not valid UTF-8");
    return *c;
  };
  while (!take("]")) {
    if (rest_.empty() || rest_[0] == '\n') return invalid("has a '[' without ']'");
    if (!meter_.spend(2)) return over_budget(meter_);
    BATON_TRY(const char32_t first, one());
    char32_t last = first;
    if (rest_.size() >= 2 && rest_[0] == '-' && rest_[1] != ']') {
      rest_.remove_prefix(1);
      BATON_TRY(last, one());
      if (last < first) return invalid("has a range whose end is before its begin");
    }
    all.emplace_back(first, last);
  }
  return is_negated ? complement(std::move(all)) : normalized(std::move(all));
}

Result<ExprId> EbnfParser::regex() {
  std::string source;
  while (!rest_.empty() && rest_[0] != '/') {
    if (rest_[0] == '\n') return invalid("ends inside a regular expression");
    if (rest_.starts_with("\\/"))
      rest_.remove_prefix(1);
    else if (rest_.starts_with("\\") && rest_.size() > 1) {
      source.push_back(rest_[0]);
      rest_.remove_prefix(1);
    }
    source.push_back(rest_[0]);
    rest_.remove_prefix(1);
  }
  if (!take("/")) return invalid("has a regular expression without its end");
  if (!rest_.empty() && is_name_character(rest_[0])) return unsupported("a regular expression with flags");
  auto parsed = parse_regex(expressions_, source, RegexUse::whole, meter_);
  if (!parsed) return error(parsed.error().code, fmt::format("has an expression that is refused: {}", parsed.error().message));
  return *parsed;
}

Result<ExprId> EbnfParser::item() {
  const auto closed = [&](std::string_view end) -> Result<ExprId> {
    BATON_TRY(const ExprId inside, alternatives());
    if (!take(end)) return invalid(fmt::format("has a group without '{}'", end));
    return inside;
  };
  if (take("\"")) {
    BATON_TRY(const std::string text, literal('"'));
    return expressions_.bytes(text);
  }
  if (is_lark_ && take("'")) {
    BATON_TRY(const std::string text, literal('\''));
    return expressions_.bytes(text);
  }
  if (is_lark_ && take("/")) return regex();
  if (take("(")) return closed(")");
  if (take("[")) {
    if (is_lark_) {
      BATON_TRY(const ExprId inside, closed("]"));
      return expressions_.optional(inside);
    }
    BATON_TRY(CharRanges ranges, char_class());
    return expressions_.characters(ranges, meter_);
  }
  if (!is_lark_ && take(".")) return expressions_.characters({{0, kLastCodePoint}}, meter_);
  const std::string_view name = take_name();
  if (name.empty())
    return invalid(rest_.empty() ? "ends too early" : fmt::format("has '{}' where it is not expected", rest_[0]));
  if (is_lark_ && (rest_.starts_with("{") || rest_.starts_with("."))) return unsupported("a template or a priority");
  return expressions_.rule(rule_of(name));
}

Result<ExprId> EbnfParser::postfix(ExprId part) {
  while (true) {
    if (take("*"))
      part = expressions_.repeat(part, 0, kUnlimited);
    else if (take("+"))
      part = expressions_.repeat(part, 1, kUnlimited);
    else if (take("?"))
      part = expressions_.optional(part);
    else if (!is_lark_ && take("{")) {
      const auto number = [&]() -> std::optional<int> {
        std::optional<int> value;
        for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; rest_.remove_prefix(1))
          value = std::min(value.value_or(0) * 10 + (rest_[0] - '0'), kMaxRepeat + 1);
        return value;
      };
      const std::optional<int> min = number();
      std::optional<int> max = min;
      if (take(",")) max = number();
      if (!take("}") || (!min && !max)) return invalid("has a '{' that begins no repetition");
      if (min.value_or(0) > kMaxRepeat || max.value_or(0) > kMaxRepeat)
        return invalid(fmt::format("repeats more than {} times", kMaxRepeat));
      if (max && *max < min.value_or(0)) return invalid("has a repetition whose bounds are in the wrong order");
      part = expressions_.repeat(part, min.value_or(0), max.value_or(kUnlimited));
    } else if (is_lark_ && (rest_.starts_with("~") || rest_.starts_with(".."))) {
      return unsupported("a counted repetition or a range");
    } else {
      return part;
    }
  }
}

Result<ExprId> EbnfParser::sequence() {
  std::vector<ExprId> parts;
  for (skip(); !rest_.empty(); skip()) {
    if (!meter_.spend(4)) return over_budget(meter_);
    if (std::string_view("|)%").find(rest_[0]) != std::string_view::npos || (is_lark_ && rest_[0] == ']')) break;
    if (begins_definition()) break;
    if (is_lark_ && take("->")) {
      skip();
      take_name();
      continue;
    }
    BATON_TRY(ExprId part, item());
    BATON_TRY(part, postfix(part));
    parts.push_back(part);
  }
  return parts.empty() ? expressions_.empty() : expressions_.sequence(std::move(parts));
}

Result<ExprId> EbnfParser::alternatives() {
  if (!stack_.has_room(8192)) return invalid("is nested too deep");
  std::vector<ExprId> all;
  do {
    BATON_TRY(const ExprId one, sequence());
    all.push_back(one);
  } while (take("|"));
  return expressions_.choice(std::move(all));
}

Result<RuleId> EbnfParser::parse() {
  {  // which notation it is: what stands behind the first name
    skip();
    const std::string_view before = rest_;
    if (rest_.starts_with("//") || rest_.starts_with("%") || rest_.starts_with("?") || rest_.starts_with("!")) {
      is_lark_ = true;
    } else {
      take_name();
      while (rest_.starts_with(" ") || rest_.starts_with("\t")) rest_.remove_prefix(1);
      is_lark_ = rest_.starts_with(":") && !rest_.starts_with("::=");
    }
    rest_ = before;
  }
  for (skip(); !rest_.empty(); skip()) {
    if (take("%")) return unsupported(fmt::format("the directive '%{}'", take_name()));
    const std::optional<std::string_view> name = take_definition();
    if (!name) return invalid("begins no rule; a rule is 'name ::= ...'");
    const RuleId rule = rule_of(*name);
    if (expressions_.body(rule) != Expressions::kUndefined) return invalid(fmt::format("defines the rule '{}' again", *name));
    BATON_TRY(const ExprId body, alternatives());
    if (rest_.starts_with(")") || rest_.starts_with("]")) return invalid(fmt::format("has a '{}' too many", rest_[0]));
    expressions_.define(rule, body);
  }
  const std::string_view first = is_lark_ ? "start" : "root";
  const auto root = rules_.find(first);
  if (root == rules_.end())
    return fail(ErrorCode::invalid_request, fmt::format("the grammar has no rule '{}', where texts begin", first));
  return root->second;
}

}  // namespace

Result<RuleId> parse_ebnf(Expressions& expressions, std::string_view text, WorkMeter& meter) {
  return EbnfParser(expressions, text, meter).parse();
}

}  // namespace baton::grammar
