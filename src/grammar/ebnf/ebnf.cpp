/// A parser of grammars in GBNF and Lark.
#include "grammar/ebnf/ebnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/limits/stack_space.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/regex.h"
#include "grammar/automaton/source_cursor.h"
#include "grammar/ebnf/lark_terminals.h"

namespace baton::grammar {

namespace {

bool is_name_character(char c) { return ascii::is_letter(c) || ascii::is_digit(c) || c == '_' || c == '-'; }

/// Whether Lark takes a name for a terminal's: its first letter is large.
bool is_terminal(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  return !name.empty() && name[0] >= 'A' && name[0] <= 'Z';
}

class EbnfParser {
 public:
  EbnfParser(Expressions& expressions, std::string_view text, WorkMeter& meter)
      : expressions_(expressions), source_(text, message), meter_(meter) {}

  Result<RuleId> parse();

 private:
  static std::string message(std::string_view read, std::string_view what) {
    return fmt::format("line {} of the grammar {}", 1 + std::count(read.begin(), read.end(), '\n'), what);
  }
  /// Passes over spaces, line ends and comments.
  void skip();
  /// Passes over spaces, up to the end of the line.
  void skip_blanks();
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
  /// Of so many hexadecimal digits; of four, also as a surrogate pair.
  Result<char32_t> code_point(std::size_t n_digits);
  Result<CharRanges> char_class();
  Result<ExprId> regex();
  Result<ExprId> lark_literal(char quote);
  /// A number of repetitions, after a `~`.
  Result<ExprId> counted(ExprId part);
  /// From `min` to `max` of `part`. Errors: too many, or in the wrong order.
  Result<ExprId> repeat_within(ExprId part, int min, int max);
  Result<void> directive();
  Result<void> import();
  Result<void> import_common(std::string_view name, std::string_view alias);
  Result<void> definition(std::string_view name);
  /// A terminal, and what may be ignored after it.
  ExprId terminal(ExprId expr);
  /// Where texts begin, and what may be ignored there.
  Result<RuleId> start(RuleId first);

  Expressions& expressions_;
  SourceCursor source_;
  WorkMeter& meter_;
  bool is_lark_ = false;
  bool is_in_rule_ = false;          // of Lark, and not in a terminal
  std::optional<RuleId> ignored_;    // any number of the texts of %ignore; nullopt: there is no such directive
  std::vector<ExprId> all_ignored_;  // what these directives name
  std::map<std::string, RuleId, std::less<>> rules_;
  StackSpace stack_;
};

void EbnfParser::skip() {
  while (!source_.rest.empty()) {
    const char c = source_.rest[0];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      source_.rest.remove_prefix(1);
    } else if (c == '#' || (is_lark_ && source_.rest.starts_with("//"))) {
      source_.rest.remove_prefix(std::min(source_.rest.find('\n'), source_.rest.size()));
    } else {
      return;
    }
  }
}

void EbnfParser::skip_blanks() {
  while (source_.rest.starts_with(" ") || source_.rest.starts_with("\t")) source_.rest.remove_prefix(1);
}

std::string_view EbnfParser::take_name() {
  const auto end = std::find_if_not(source_.rest.begin(), source_.rest.end(), is_name_character);
  const std::string_view name = source_.rest.substr(0, static_cast<std::size_t>(end - source_.rest.begin()));
  source_.rest.remove_prefix(name.size());
  return name;
}

std::optional<std::string_view> EbnfParser::take_definition() {
  const std::string_view before = source_.rest;
  if (source_.rest.starts_with("?") || source_.rest.starts_with("!"))
    source_.rest.remove_prefix(1);  // how Lark shapes its tree
  const std::string_view name = take_name();
  if (is_lark_ && !name.empty() && source_.take("."))
    source_.take_count();  // which of two terminals a text is, where it may be both
  skip_blanks();
  if (!name.empty() && (source_.take("::=") || source_.take(":"))) return name;
  source_.rest = before;
  return std::nullopt;
}

bool EbnfParser::begins_definition() {
  const std::string_view before = source_.rest;
  const bool is_one = take_definition().has_value();
  source_.rest = before;
  return is_one;
}

RuleId EbnfParser::rule_of(std::string_view name) {
  const auto known = rules_.find(name);
  if (known != rules_.end()) return known->second;
  meter_.write(name.size() + 96);
  return rules_.emplace(std::string(name), expressions_.add_rule(one_line(name, kMaxQuotedBytes))).first->second;
}

Result<char32_t> EbnfParser::code_point(std::size_t n_digits) {
  BATON_TRY(const char32_t first, source_.take_hex(n_digits));
  if (first < 0xD800 || first >= 0xE000) return first;
  if (first < 0xDC00 && n_digits == 4 && source_.take("\\u")) {
    BATON_TRY(const char32_t second, source_.take_hex(4));
    if (second >= 0xDC00 && second < 0xE000) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }
  return source_.invalid("has half of a surrogate pair");
}

Result<char32_t> EbnfParser::escape() {
  if (source_.rest.empty()) return source_.invalid("ends with a backslash");
  const char c = source_.rest[0];
  source_.rest.remove_prefix(1);
  switch (c) {
    case 'n': return U'\n';
    case 'r': return U'\r';
    case 't': return U'\t';
    case 'f': return U'\f';
    case 'b': return U'\b';
    case 'x': return source_.take_hex(2);
    case 'u': return code_point(4);
    case 'U': return code_point(8);
    default: break;
  }
  if (ascii::is_letter(c) || ascii::is_digit(c)) return source_.unsupported(fmt::format("the escape '\\{}'", c));
  return static_cast<char32_t>(static_cast<unsigned char>(c));
}

/// The texts of a literal as code points, so that \xE9 is the character U+00E9.
Result<std::string> EbnfParser::literal(char quote) {
  std::string bytes;
  while (!source_.rest.empty() && source_.rest[0] != quote) {
    if (!meter_.spend(1)) return over_budget(meter_);
    if (source_.rest[0] == '\n') return source_.invalid("ends inside a literal");
    if (!source_.take("\\")) {
      bytes.push_back(source_.rest[0]);
      source_.rest.remove_prefix(1);
      continue;
    }
    BATON_TRY(const char32_t c, escape());
    append_utf8(bytes, c);
  }
  if (!source_.take(std::string_view(&quote, 1))) return source_.invalid("has a literal without its end");
  return bytes;
}

Result<ExprId> EbnfParser::lark_literal(char quote) {
  BATON_TRY(const std::string text, literal(quote));
  if (source_.take("..")) {
    const char other = source_.rest.starts_with("'") ? '\'' : '"';
    if (!source_.take(std::string_view(&other, 1))) return source_.invalid("has a range whose end is no literal");
    BATON_TRY(const std::string end, literal(other));
    std::string_view first = text, last = end;
    const std::optional<char32_t> from = take_character(first), to = take_character(last);
    if (!from || !to || !first.empty() || !last.empty())
      return source_.invalid("has a range of texts that are no single characters");
    if (*to < *from) return source_.invalid("has a range whose end is before its begin");
    return expressions_.characters({{*from, *to}}, meter_);
  }
  if (!source_.take("i")) return expressions_.bytes(text);
  std::vector<ExprId> parts;
  for (const char c : text) {
    if (!meter_.spend(4)) return over_budget(meter_);
    const auto byte = static_cast<unsigned char>(c);
    ByteSet set;
    set.set(byte);
    if (ascii::is_letter(c)) set.set(byte ^ 0x20U);
    parts.push_back(expressions_.byte_set(set));
  }
  return parts.empty() ? expressions_.empty() : expressions_.sequence(parts);
}

Result<CharRanges> EbnfParser::char_class() {
  const bool is_negated = source_.take("^");
  CharRanges all;
  const auto one = [&]() -> Result<char32_t> {
    if (source_.take("\\")) return escape();
    const std::optional<char32_t> c = take_character(source_.rest);
    if (!c) return source_.invalid("is not valid UTF-8");
    return *c;
  };
  while (!source_.take("]")) {
    if (source_.rest.empty() || source_.rest[0] == '\n') return source_.invalid("has a '[' without ']'");
    if (!meter_.spend(3)) return over_budget(meter_);
    BATON_TRY(const char32_t first, one());
    char32_t last = first;
    if (source_.rest.size() >= 2 && source_.rest[0] == '-' && source_.rest[1] != ']') {
      source_.rest.remove_prefix(1);
      BATON_TRY(last, one());
      if (last < first) return source_.invalid("has a range whose end is before its begin");
    }
    all.emplace_back(first, last);
  }
  return is_negated ? complement(std::move(all)) : normalized(std::move(all));
}

Result<ExprId> EbnfParser::regex() {
  std::string source;
  while (!source_.rest.empty() && source_.rest[0] != '/') {
    if (source_.rest[0] == '\n') return source_.invalid("ends inside a regular expression");
    if (source_.rest.starts_with("\\/"))
      source_.rest.remove_prefix(1);
    else if (source_.rest.starts_with("\\") && source_.rest.size() > 1) {
      source.push_back(source_.rest[0]);
      source_.rest.remove_prefix(1);
    }
    source.push_back(source_.rest[0]);
    source_.rest.remove_prefix(1);
  }
  if (!source_.take("/")) return source_.invalid("has a regular expression without its end");
  if (!source_.rest.empty() && is_name_character(source_.rest[0]))
    return source_.unsupported("a regular expression with flags");
  auto parsed = parse_regex(expressions_, source, RegexUse::part, meter_);
  if (!parsed)
    return source_.error(parsed.error().code, fmt::format("has an expression that is refused: {}", parsed.error().message));
  return *parsed;
}

Result<ExprId> EbnfParser::item() {
  const auto closed = [&](std::string_view end) -> Result<ExprId> {
    BATON_TRY(const ExprId inside, alternatives());
    if (!source_.take(end)) return source_.invalid(fmt::format("has a group without '{}'", end));
    return inside;
  };
  if (is_lark_ && (source_.rest.starts_with("\"") || source_.rest.starts_with("'") || source_.rest.starts_with("/"))) {
    const char begin = source_.rest[0];
    source_.rest.remove_prefix(1);
    BATON_TRY(const ExprId expr, begin == '/' ? regex() : lark_literal(begin));
    return terminal(expr);
  }
  if (source_.take("\"")) {
    BATON_TRY(const std::string text, literal('"'));
    return expressions_.bytes(text);
  }
  if (source_.take("(")) return closed(")");
  if (source_.take("[")) {
    if (is_lark_) {
      BATON_TRY(const ExprId inside, closed("]"));
      return expressions_.optional(inside);
    }
    BATON_TRY(CharRanges ranges, char_class());
    return expressions_.characters(ranges, meter_);
  }
  if (!is_lark_ && source_.take(".")) return expressions_.characters({{0, kLastCodePoint}}, meter_);
  const std::string_view name = take_name();
  if (name.empty())
    return source_.invalid(source_.rest.empty() ? "ends too early"
                                                : fmt::format("has '{}' where it is not expected", source_.rest[0]));
  if (is_lark_ && source_.rest.starts_with("{")) return source_.unsupported("a template");
  const ExprId rule = expressions_.rule(rule_of(name));
  return is_terminal(name) ? terminal(rule) : rule;
}

ExprId EbnfParser::terminal(ExprId expr) {
  return is_in_rule_ && ignored_ ? expressions_.sequence({expr, expressions_.rule(*ignored_)}) : expr;
}

Result<ExprId> EbnfParser::counted(ExprId part) {
  skip_blanks();
  const std::optional<int> min = source_.take_count();
  const std::optional<int> max = source_.take("..") ? source_.take_count() : min;
  if (!min || !max) return source_.invalid("has a '~' that begins no repetition");
  return repeat_within(part, *min, *max);
}

Result<ExprId> EbnfParser::repeat_within(ExprId part, int min, int max) {
  if (min > kMaxRepeat || max > kMaxRepeat) return source_.invalid(fmt::format("repeats more than {} times", kMaxRepeat));
  if (max != kUnlimited && max < min) return source_.invalid("has a repetition whose bounds are in the wrong order");
  return expressions_.repeat(part, min, max);
}

Result<ExprId> EbnfParser::postfix(ExprId part) {
  while (true) {
    if (!meter_.spend(2)) return over_budget(meter_);
    if (source_.take("*"))
      part = expressions_.repeat(part, 0, kUnlimited);
    else if (source_.take("+"))
      part = expressions_.repeat(part, 1, kUnlimited);
    else if (source_.take("?"))
      part = expressions_.optional(part);
    else if (!is_lark_ && source_.take("{")) {
      const std::optional<int> min = source_.take_count();
      std::optional<int> max = min;
      if (source_.take(",")) max = source_.take_count();
      if (!source_.take("}") || (!min && !max)) return source_.invalid("has a '{' that begins no repetition");
      BATON_TRY(part, repeat_within(part, min.value_or(0), max.value_or(kUnlimited)));
    } else {
      const std::string_view before = source_.rest;
      skip_blanks();
      if (!is_lark_ || !source_.take("~")) {
        source_.rest = before;
        return part;
      }
      BATON_TRY(part, counted(part));
    }
  }
}

Result<ExprId> EbnfParser::sequence() {
  std::vector<ExprId> parts;
  for (skip(); !source_.rest.empty(); skip()) {
    if (!meter_.spend(4)) return over_budget(meter_);
    if (std::string_view("|)%").find(source_.rest[0]) != std::string_view::npos || (is_lark_ && source_.rest[0] == ']')) break;
    if (begins_definition()) break;
    if (is_lark_ && source_.take("->")) {
      skip();
      take_name();
      continue;
    }
    BATON_TRY(ExprId part, item());
    BATON_TRY(part, postfix(part));
    parts.push_back(part);
  }
  return parts.empty() ? expressions_.empty() : expressions_.sequence(parts);
}

Result<ExprId> EbnfParser::alternatives() {
  if (!stack_.has_room(8192)) return source_.invalid("is nested too deep");
  std::vector<ExprId> all;
  do {
    if (!meter_.spend(4)) return over_budget(meter_);
    BATON_TRY(const ExprId one, sequence());
    all.push_back(one);
  } while (source_.take("|"));
  return expressions_.choice(all);
}

Result<RuleId> EbnfParser::parse() {
  source_.take("\xEF\xBB\xBF");
  {  // which notation it is: what stands after the first name
    skip();
    const std::string_view before = source_.rest;
    if (source_.rest.starts_with("//") || source_.rest.starts_with("%") || source_.rest.starts_with("?") ||
        source_.rest.starts_with("!")) {
      is_lark_ = true;
    } else {
      take_name();
      skip_blanks();
      const bool has_more = source_.rest.starts_with(".") || source_.rest.starts_with("{");  // a priority, or a template
      is_lark_ = has_more || (source_.rest.starts_with(":") && !source_.rest.starts_with("::="));
    }
    source_.rest = before;
  }
  if (is_lark_ && source_.rest.find("%ignore") != std::string_view::npos)
    ignored_ = expressions_.add_rule("what %ignore names");
  for (skip(); !source_.rest.empty(); skip()) {
    if (is_lark_ && source_.take("%")) {
      BATON_TRY_VOID(directive());
      continue;
    }
    const std::optional<std::string_view> name = take_definition();
    if (!name) {
      if (is_lark_ && !take_name().empty() && source_.rest.starts_with("{")) return source_.unsupported("a template");
      return source_.invalid(is_lark_ ? "begins no rule; a rule is 'name: ...'" : "begins no rule; a rule is 'name ::= ...'");
    }
    BATON_TRY_VOID(definition(*name));
  }
  const std::string_view first = is_lark_ ? "start" : "root";
  const auto root = rules_.find(first);
  if (root == rules_.end())
    return fail(ErrorCode::invalid_request, fmt::format("the grammar has no rule '{}', where texts begin", first));
  return start(root->second);
}

Result<void> EbnfParser::definition(std::string_view name) {
  const RuleId rule = rule_of(name);
  if (expressions_.body(rule) != Expressions::kUndefined)
    return source_.invalid(fmt::format("defines the rule '{}' again", one_line(name, kMaxQuotedBytes)));
  is_in_rule_ = is_lark_ && !is_terminal(name);
  BATON_TRY(const ExprId body, alternatives());
  if (source_.rest.starts_with(")") || source_.rest.starts_with("]"))
    return source_.invalid(fmt::format("has a '{}' too many", source_.rest[0]));
  expressions_.define(rule, body);
  return {};
}

Result<void> EbnfParser::directive() {
  const std::string_view name = take_name();
  if (name == "import") return import();
  if (name != "ignore") return source_.unsupported(fmt::format("the directive '%{}'", one_line(name, kMaxQuotedBytes)));
  is_in_rule_ = false;
  BATON_TRY(const ExprId ignored, alternatives());
  all_ignored_.push_back(ignored);
  return {};
}

Result<void> EbnfParser::import() {
  skip_blanks();
  if (take_name() != "common") return source_.unsupported("an import from another module than 'common'");
  if (source_.take(".")) {
    const std::string_view name = take_name();
    skip_blanks();
    if (!source_.take("->")) return import_common(name, name);
    skip_blanks();
    return import_common(name, take_name());
  }
  skip_blanks();
  if (!source_.take("(")) return source_.invalid("has an import that names no terminal");
  do {
    skip();
    const std::string_view name = take_name();
    BATON_TRY_VOID(import_common(name, name));
    skip();
  } while (source_.take(","));
  if (!source_.take(")")) return source_.invalid("has an import without ')'");
  return {};
}

Result<void> EbnfParser::import_common(std::string_view name, std::string_view alias) {
  const std::optional<std::string_view> regex = common_terminal(name);
  if (!regex)
    return source_.invalid(fmt::format("imports '{}', which 'common' does not have", one_line(name, kMaxQuotedBytes)));
  const RuleId rule = rule_of(alias);
  if (expressions_.body(rule) != Expressions::kUndefined)
    return source_.invalid(fmt::format("defines the rule '{}' again", one_line(alias, kMaxQuotedBytes)));
  BATON_TRY(const ExprId body, parse_regex(expressions_, *regex, RegexUse::part, meter_));
  expressions_.define(rule, body);
  return {};
}

Result<RuleId> EbnfParser::start(RuleId first) {
  if (!ignored_) return first;
  // As one automaton, in which a text is at one place however often and by whatever parts it is ignored.
  expressions_.define(*ignored_, expressions_.repeat(expressions_.choice(all_ignored_), 0, kUnlimited));
  const auto regular = without_rules(expressions_, expressions_.rule(*ignored_), meter_);
  if (!regular) return fail(regular.error().code, fmt::format("what the grammar's %ignore names: {}", regular.error().message));
  BATON_TRY(const Dfa dfa, determinize(expressions_, *regular, meter_));
  expressions_.define(*ignored_, expressions_.automaton(dfa));
  const RuleId whole = expressions_.add_rule("start");
  expressions_.define(whole, expressions_.sequence({expressions_.rule(*ignored_), expressions_.rule(first)}));
  return whole;
}

}  // namespace

Result<RuleId> parse_ebnf(Expressions& expressions, std::string_view text, WorkMeter& meter) {
  return EbnfParser(expressions, text, meter).parse();
}

}  // namespace baton::grammar
