/// Values, strings and spaces of JSON as expressions.
#include "grammar/automaton/json_text.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "grammar/automaton/char_ranges.h"

namespace baton::grammar {

ExprId JsonText::spaces() {
  if (spaces_policy_ == JsonSpaces::none) return expressions_.empty();
  if (!spaces_rule_) {
    constexpr int kMaxIndent = 64;
    ByteSet blank;
    blank.set(' ').set('\t');
    spaces_rule_ = expressions_.add_rule("JSON spaces");
    const ExprId indent = expressions_.repeat(expressions_.byte_set(blank), 0, kMaxIndent);
    const ExprId line =
        expressions_.sequence({expressions_.optional(expressions_.bytes("\r")), expressions_.bytes("\n"), indent});
    expressions_.define(*spaces_rule_, expressions_.optional(expressions_.choice({expressions_.bytes(" "), line})));
  }
  return expressions_.rule(*spaces_rule_);
}

ExprId JsonText::colon() {
  if (spaces_policy_ == JsonSpaces::none) return expressions_.bytes(":");
  return expressions_.sequence({expressions_.bytes(":"), expressions_.optional(expressions_.bytes(" "))});
}

ExprId JsonText::comma() { return expressions_.sequence({expressions_.bytes(","), spaces()}); }

Result<ExprId> JsonText::character() {
  if (character_) return *character_;
  BATON_TRY(const ExprId plain, expressions_.characters(complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}), meter_));
  const auto set = [&](std::string_view bytes) {
    ByteSet all;
    for (const char byte : bytes) all.set(static_cast<unsigned char>(byte));
    return expressions_.byte_set(all);
  };
  const ExprId hex = set("0123456789abcdefABCDEF");
  const ExprId d = set("dD");
  const ExprId outside = expressions_.choice({expressions_.sequence({set("0123456789abcefABCEF"), hex, hex, hex}),
                                              expressions_.sequence({d, set("01234567"), hex, hex})});
  const ExprId pair =
      expressions_.sequence({d, set("89abAB"), hex, hex, expressions_.bytes("\\u"), d, set("cdefCDEF"), hex, hex});
  const ExprId escape = expressions_.choice(
      {set("\"\\/bfnrt"), expressions_.sequence({expressions_.bytes("u"), expressions_.choice({outside, pair})})});
  const ExprId all = expressions_.choice({plain, expressions_.sequence({expressions_.bytes("\\"), escape})});
  BATON_TRY(const Dfa dfa, determinize(expressions_, all, meter_));
  character_ = expressions_.automaton(dfa);
  return *character_;
}

Result<ExprId> JsonText::string() {
  if (!string_) {
    BATON_TRY(const ExprId one, character());
    string_ = expressions_.add_rule("JSON string");
    const ExprId quote = expressions_.bytes("\"");
    expressions_.define(*string_, expressions_.sequence({quote, expressions_.repeat(one, 0, kUnlimited), quote}));
  }
  return expressions_.rule(*string_);
}

Result<ExprId> JsonText::string_of(const Dfa& content) {
  BATON_TRY(const Dfa escaped, json_escaped(content, meter_));
  const ExprId quote = expressions_.bytes("\"");
  return expressions_.sequence({quote, expressions_.automaton(escaped), quote});
}

Result<const Dfa*> JsonText::characters() {
  if (!characters_) {
    BATON_TRY(const ExprId one, character());
    BATON_TRY(characters_, determinize(expressions_, expressions_.repeat(one, 0, kUnlimited), meter_));
  }
  return &*characters_;
}

namespace {

/// An automaton of texts in quotes, and of each state whether its edges begin a character: the closing quote counts as one.
struct QuotedTexts {
  Dfa dfa;
  std::vector<bool> counts;
};

/// `begins_character`: of states of `texts`, whether edges from there may begin one.
template <class BeginsCharacter>
Result<QuotedTexts> quoted(const Dfa& texts, WorkMeter& meter, const BeginsCharacter& begins_character) {
  QuotedTexts all{Dfa(meter), {}};
  const auto n = static_cast<std::int32_t>(texts.n_states());
  const std::int32_t end = n + 1;
  all.dfa.next.reserve(texts.n_states() + 2);
  for (std::int32_t state = 0; state <= end; ++state) {
    if (!meter.spend(8)) return over_budget(meter);
    all.dfa.add_state(state == end);
    const bool is_of_text = state > 0 && state < end;
    all.counts.push_back(is_of_text && begins_character(static_cast<std::size_t>(state - 1)));
    Dfa::Row& row = all.dfa.next.back();
    if (state == 0) row['"'] = 1;
    if (!is_of_text) continue;
    const Dfa::Row& from = texts.next[static_cast<std::size_t>(state - 1)];
    std::transform(from.begin(), from.end(), row.begin(), [](std::int32_t to) { return to == Dfa::kDead ? to : to + 1; });
    if (texts.is_final[static_cast<std::size_t>(state - 1)]) row['"'] = end;
  }
  return all;
}

}  // namespace

Result<ExprId> JsonText::counted_string(std::string name, const std::optional<Dfa>& content, const LengthBounds& length) {
  if (!length.is_possible() || (content && content->is_empty())) return expressions_.nothing();
  const LengthBounds with_quote{.min = length.min + 1, .max = length.max < 0 ? length.max : length.max + 1};
  if (!content) {
    BATON_TRY(const Dfa* any, characters());
    BATON_TRY(const QuotedTexts all, quoted(*any, meter_, [&](std::size_t state) { return any->is_final[state]; }));
    return expressions_.counted_rule(std::move(name), all.dfa, all.counts, with_quote);
  }
  BATON_TRY(const Dfa escaped, json_escaped(*content, meter_));
  BATON_TRY(const QuotedTexts all, quoted(escaped, meter_, [&](std::size_t state) {
              return state < content->n_states() && is_between_characters(*content, state);
            }));
  return expressions_.counted_rule(std::move(name), all.dfa, all.counts, with_quote);
}

ExprId JsonText::literal_string(std::string_view text) {
  return expressions_.bytes(json::dump(json::Value(std::string(text))));
}

ExprId JsonText::number() {
  if (!number_) {
    ByteSet digits;
    for (char c = '0'; c <= '9'; ++c) digits.set(static_cast<std::size_t>(c));
    ByteSet nonzero = digits;
    nonzero.reset('0');
    ByteSet sign;
    sign.set('+').set('-');
    ByteSet e;
    e.set('e').set('E');
    const ExprId digit = expressions_.byte_set(digits);
    const ExprId some = expressions_.repeat(digit, 1, kUnlimited);
    const ExprId integer = expressions_.choice(
        {expressions_.bytes("0"),
         expressions_.sequence({expressions_.byte_set(nonzero), expressions_.repeat(digit, 0, kUnlimited)})});
    number_ = expressions_.add_rule("JSON number");
    expressions_.define(
        *number_,
        expressions_.sequence({expressions_.optional(expressions_.bytes("-")), integer,
                               expressions_.optional(expressions_.sequence({expressions_.bytes("."), some})),
                               expressions_.optional(expressions_.sequence(
                                   {expressions_.byte_set(e), expressions_.optional(expressions_.byte_set(sign)), some}))}));
  }
  return expressions_.rule(*number_);
}

ExprId JsonText::list(std::string_view open, ExprId element, std::string_view close) {
  const ExprId more = expressions_.repeat(expressions_.sequence({comma(), element}), 0, kUnlimited);
  const ExprId end = expressions_.bytes(close);
  const ExprId some = expressions_.sequence({element, more, spaces(), end});
  return expressions_.sequence({expressions_.bytes(open), spaces(), expressions_.choice({end, some})});
}

Result<ExprId> JsonText::object() {
  if (!object_) {
    object_ = expressions_.add_rule("JSON object");
    BATON_TRY(const ExprId key, string());
    BATON_TRY(const ExprId any, value());
    expressions_.define(*object_, list("{", expressions_.sequence({key, colon(), any}), "}"));
  }
  return expressions_.rule(*object_);
}

Result<ExprId> JsonText::array() {
  if (!array_) {
    array_ = expressions_.add_rule("JSON array");
    BATON_TRY(const ExprId any, value());
    expressions_.define(*array_, list("[", any, "]"));
  }
  return expressions_.rule(*array_);
}

Result<ExprId> JsonText::value() {
  if (!value_) {
    value_ = expressions_.add_rule("JSON value");
    BATON_TRY(const ExprId any_string, string());
    BATON_TRY(const ExprId any_object, object());
    BATON_TRY(const ExprId any_array, array());
    expressions_.define(
        *value_, expressions_.choice({expressions_.bytes("null"), expressions_.bytes("true"), expressions_.bytes("false"),
                                      number(), any_string, any_object, any_array}));
  }
  return expressions_.rule(*value_);
}

Result<ExprId> JsonText::literal(const json::Value& value) {
  if (value.is_number()) return expressions_.bytes(plain_decimal(value));
  if (!value.is_structured()) return expressions_.bytes(json::dump(value));
  if (!stack_.has_room(8192)) return fail(ErrorCode::too_large, "a listed value is nested too deep");
  if (!meter_.spend(4)) return over_budget(meter_);
  std::vector<ExprId> parts{expressions_.bytes(value.is_object() ? "{" : "[")};
  bool is_first = true;
  for (auto element = value.begin(); element != value.end(); ++element) {
    parts.push_back(is_first ? spaces() : comma());
    is_first = false;
    if (value.is_object()) {
      parts.push_back(literal_string(element.key()));
      parts.push_back(colon());
    }
    BATON_TRY(const ExprId part, literal(*element));
    parts.push_back(part);
  }
  parts.push_back(spaces());
  parts.push_back(expressions_.bytes(value.is_object() ? "}" : "]"));
  return expressions_.sequence(parts);
}

std::string plain_decimal(const json::Value& number) {
  if (!number.is_number_float()) return json::dump(number);
  std::string text = fmt::format("{}", number.get<double>());
  const std::string sign = text.starts_with('-') ? "-" : "";
  text.erase(0, sign.size());
  int exponent = 0;
  if (const std::size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::atoi(text.c_str() + e + 1);
    text.resize(e);
  }
  const std::size_t dot = std::min(text.find('.'), text.size());
  std::string whole = text.substr(0, dot);
  std::string fraction = dot < text.size() ? text.substr(dot + 1) : "";
  for (; exponent > 0; --exponent) {
    whole += fraction.empty() ? '0' : fraction[0];
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(0, 1, whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  if (whole.empty()) whole = "0";
  while (fraction.ends_with('0')) fraction.pop_back();
  if (whole == "0" && fraction.empty()) return "0";
  return sign + whole + (fraction.empty() ? "" : "." + fraction);
}

}  // namespace baton::grammar
