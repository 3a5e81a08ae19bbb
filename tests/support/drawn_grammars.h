/// Documents of every front end of grammars, drawn from a fuzzer's bytes: they know every keyword, nest, repeat and refer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "io/json.h"
#include "support/drawn.h"

namespace baton::test {

class DrawnGrammar {
 public:
  /// A document ends to grow at about `max_bytes`.
  DrawnGrammar(Drawn& draws, std::size_t max_bytes) : draws_(draws), max_bytes_(max_bytes) {}

  std::string schema() {
    std::string body = schema_fields(0);
    const std::string defs = fields(count(), [&](std::size_t i) { return fmt::format("\"d{}\":{}", i, one_schema(1)); });
    if (draws_.one_in(4)) body = joined(body, R"("$schema":"http://json-schema.org/draft-07/schema#")");
    return "{" + joined(body, "\"$defs\":{" + defs + "}") + "}";
  }

  std::string regex(int depth = 0) {
    std::string all;
    const std::size_t n = 1 + draws_.below(4);
    for (std::size_t i = 0; i < n; ++i) {
      if (i > 0 && draws_.one_in(3)) all += "|";
      all += repeat(regex_atom(depth), small_or_many());
      if (draws_.one_in(2)) all += draws_.of(kPostfixes);
    }
    return all;
  }

  std::string ebnf() {
    const bool is_lark = draws_.one_in(2);
    const std::string_view sign = is_lark ? ": " : " ::= ";
    std::string all = std::string(is_lark ? "start" : "root") + std::string(sign) + alternatives(is_lark, 0) + "\n";
    const std::size_t n = std::min<std::size_t>(count(), 3000);
    for (std::size_t i = 0; i < n && has_room(all); ++i) {
      const std::string_view name = is_lark && draws_.one_in(3) ? "T" : "r";
      all += fmt::format("{}{}{}{}\n", name, i, sign, alternatives(is_lark, 1));
    }
    if (is_lark) all += repeat(draws_.of(kDirectives), small_or_many());
    return all;
  }

  std::string choices() {
    return "[" + fields(1 + count(), [&](std::size_t i) { return fmt::format("\"{}{}\"", word(), draws_.one_in(2) ? i : 0); }) +
           "]";
  }

  std::string structural_tag() {
    std::string all = "{\"type\":\"structural_tag\",";
    if (draws_.one_in(4)) all += "\"tokens\":[" + texts() + "],";
    return all + "\"format\":" + format(0) + "}";
  }

  /// What a list of tools becomes: free text in which each call is held to the schema of its tool.
  std::string tool_list() {
    const std::string begin = "<" + std::string(word());
    const std::string_view style = draws_.of(std::array<std::string_view, 4>{"json", "qwen_xml", "python", "glm_xml"});
    const std::string tags = fields(1 + count(), [&](std::size_t i) {
      return fmt::format(
          R"({{"begin":"{}{}>","content":{{"type":"json_schema","style":"{}","json_schema":{{"type":"object",{}}}}},"end":"</{}>"}})",
          begin, i, style, joined(properties(1), "\"$defs\":{\"d0\":" + one_schema(1) + "}"), word());
    });
    return fmt::format(R"({{"type":"structural_tag","format":{{"type":"triggered_tags","triggers":["{}"],"tags":[{}]}}}})",
                       begin, tags);
  }

 private:
  static constexpr int kMostDeep = 6;
  static constexpr std::array<std::string_view, 12> kPostfixes{"*",     "+",      "?",       "{3}",         "{0,7}", "{2,}",
                                                               "{300}", "{0,90}", "{50,80}", "{1000,2000}", "*?",    "{9}{9}"};
  static constexpr std::array<std::string_view, 6> kDirectives{"",
                                                               "%ignore \" \"\n",
                                                               "%ignore /[ab]*/\n%ignore T0\n",
                                                               "%import common.WS\n%ignore WS\n",
                                                               "%import common (NUMBER, ESCAPED_STRING)\n",
                                                               "%ignore r1\n"};
  static constexpr std::array<std::string_view, 16> kAtoms{"a",      "b",       ".",         "\\d",      "\\w",       "\\s",
                                                           "\\p{L}", "\\P{Lu}", "[^a]",      "[a-z0-9]", "[\\p{N}x]", "^",
                                                           "$",      "\\u00e9", "(?:ab|ba)", "[^\\p{L}]"};
  static constexpr std::array<std::string_view, 9> kWords{"a", "b", "ab", "aba", "name", "x_y", "\\u00e9", "a/b", "~"};
  static constexpr std::array<std::string_view, 14> kFormats{
      "date", "time", "date-time",     "duration", "email",        "hostname", "ipv4",
      "ipv6", "uri",  "uri-reference", "uuid",     "json-pointer", "int32",    "regex"};
  static constexpr std::array<std::string_view, 10> kNumbers{"0",    "1",         "-1",     "2.5",   "1e3",
                                                             "1e-7", "123456789", "-0.001", "1e300", "7"};
  static constexpr std::array<std::string_view, 10> kTypes{"\"string\"",
                                                           "\"object\"",
                                                           "\"array\"",
                                                           "\"integer\"",
                                                           "\"number\"",
                                                           "\"null\"",
                                                           "\"boolean\"",
                                                           "[\"string\",\"null\"]",
                                                           "[\"object\",\"array\"]",
                                                           "[\"integer\",\"string\"]"};
  static constexpr std::array<std::string_view, 17> kRefusedKeywords{
      "not",         "if",    "contains", "minContains",  "dependentRequired",     "dependentSchemas", "unevaluatedItems",
      "$dynamicRef", "then",  "else",     "dependencies", "unevaluatedProperties", "$recursiveRef",    "$vocabulary",
      "title",       "x-own", "default"};

  bool has_room(std::string_view text) const { return text.size() < max_bytes_ && n_drawn_ < max_bytes_; }
  std::string_view word() { return draws_.of(kWords); }

  /// Mostly a few, rarely thousands.
  std::size_t count() {
    constexpr std::array<std::size_t, 16> kCounts{0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 6, 20, 100, 600, 3000, 12000};
    return kCounts[draws_.below(kCounts.size())];
  }
  std::size_t small_or_many() { return draws_.one_in(6) ? 1 + count() : 1; }

  std::string repeat(std::string_view text, std::size_t n) {
    std::string all;
    for (std::size_t i = 0; i < n && has_room(all); ++i) all += text;
    n_drawn_ += all.size();
    return all;
  }
  /// `one(i)` so often, with commas. What many have is drawn once.
  template <class One>
  std::string fields(std::size_t n, const One& one) {
    constexpr std::size_t kMostDrawn = 8;
    std::string all;
    std::string last;
    for (std::size_t i = 0; i < n && has_room(all); ++i) {
      if (i < kMostDrawn || draws_.one_in(16) || n < 3 * kMostDrawn) last = one(i);
      std::string own = last;
      // Names that differ, of the piece that is repeated.
      if (i >= kMostDrawn && own.starts_with('"')) own.insert(1, std::to_string(i));
      all += (i > 0 ? "," : "") + own;
      n_drawn_ += own.size();
    }
    return all;
  }
  static std::string joined(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + "," + b; }

  std::string reference() {
    constexpr std::array<std::string_view, 6> kOthers{"#", "#/properties/a", "#/$defs", "#a", "b/c#", "http://a/b"};
    return draws_.one_in(4) ? std::string(draws_.of(kOthers)) : fmt::format("#/$defs/d{}", draws_.below(5));
  }
  std::string one_schema(int depth) {
    if (depth > kMostDeep || draws_.is_at_end() || draws_.one_in(8))
      return std::string(draws_.of(std::array<std::string_view, 4>{"{}", "true", "{\"type\":\"null\"}", "false"}));
    return "{" + schema_fields(depth) + "}";
  }
  std::string properties(int depth) {
    return "\"properties\":{" +
           fields(count(), [&](std::size_t i) { return fmt::format("\"{}{}\":{}", word(), i, one_schema(depth + 1)); }) + "}";
  }
  std::string schema_fields(int depth) {
    std::string all;
    for (std::size_t n = 1 + draws_.below(4); n > 0; --n) all = joined(all, keyword(depth));
    return all;
  }
  std::string list_of_schemas(std::string_view keyword, int depth) {
    return fmt::format("\"{}\":[{}]", keyword, fields(1 + count(), [&](std::size_t) { return one_schema(depth + 1); }));
  }
  std::string value(int depth) {
    switch (depth > 3 ? 5 + draws_.below(2) : draws_.below(7)) {
      case 0: return "[" + fields(count(), [&](std::size_t) { return value(depth + 1); }) + "]";
      case 1:
        return "{" + fields(count(), [&](std::size_t i) { return fmt::format("\"{}{}\":{}", word(), i, value(depth + 1)); }) +
               "}";
      case 2: return "null";
      case 3: return "true";
      case 4: return "\"" + repeat(word(), small_or_many()) + "\"";
      case 5: return std::string(draws_.of(kNumbers));
      default: return fmt::format("\"{}{}\"", word(), draws_.below(300));
    }
  }
  std::string escaped(const std::string& text) { return json::dump(json::Value(text)); }

  std::string keyword(int depth) {
    constexpr std::array<std::string_view, 8> kCounted{"minLength",     "maxLength",     "minItems", "maxItems",
                                                       "minProperties", "maxProperties", "minItems", "maxLength"};
    constexpr std::array<std::string_view, 6> kLengths{"1", "255", "2083", "65535", "1000000", "2147483648"};
    constexpr std::array<std::string_view, 3> kAhead{"^(?=", "^(?!", "(?:a|(?!"};
    constexpr std::array<std::string_view, 5> kBounds{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                                      "multipleOf"};
    switch (draws_.below(30)) {
      case 0:
      case 1: return fmt::format("\"type\":{}", draws_.of(kTypes));
      case 2:
      case 3: return properties(depth);
      case 4:
        return "\"required\":[" + fields(count(), [&](std::size_t i) { return fmt::format("\"{}{}\"", word(), i); }) + "]";
      case 5: return fmt::format("\"additionalProperties\":{}", one_schema(depth + 1));
      case 6:
        return "\"patternProperties\":{" +
               fields(draws_.below(8),
                      [&](std::size_t) { return fmt::format("{}:{}", escaped(regex(1)), one_schema(depth + 1)); }) +
               "}";
      case 7: return fmt::format("\"items\":{}", one_schema(depth + 1));
      case 8: return list_of_schemas(draws_.one_in(2) ? "prefixItems" : "items", depth);
      case 9: return list_of_schemas("allOf", depth);
      case 10: return list_of_schemas("anyOf", depth);
      case 11: return list_of_schemas("oneOf", depth);
      case 12:
      case 13: return fmt::format("\"$ref\":\"{}\"", reference());
      case 14: return fmt::format("\"{}\":{}", draws_.of(kCounted), count());
      case 15: return fmt::format("\"{}\":{}", draws_.of(kBounds), draws_.of(kNumbers));
      case 16: return fmt::format("\"pattern\":{}", escaped(regex(1)));
      case 17: return fmt::format("\"format\":\"{}\"", draws_.of(kFormats));
      case 18: return "\"enum\":[" + fields(count(), [&](std::size_t) { return value(0); }) + "]";
      case 19: return fmt::format("\"const\":{}", value(0));
      case 20: return fmt::format("\"propertyNames\":{}", one_schema(depth + 1));
      case 21: return fmt::format("\"nullable\":{}", draws_.one_in(4) ? "false" : "true");
      case 22: return "\"uniqueItems\":true";
      case 23:
        return fmt::format("\"uniqueItems\":true,\"items\":{{\"enum\":[{}]}}",
                           fields(count(), [&](std::size_t) { return value(3); }));
      case 24: return fmt::format("\"{}\":{}", draws_.of(kBounds), draws_.one_in(2) ? "true" : "null");
      case 25: return fmt::format("\"{}\":{}", draws_.one_in(2) ? "minLength" : "maxLength", draws_.of(kLengths));
      case 26: {
        const std::string_view ahead = draws_.of(kAhead);
        const std::string rest = regex(2) + (ahead.starts_with('^') ? "" : ")");
        return fmt::format("\"pattern\":{}", escaped(std::string(ahead) + regex(2) + ")" + rest));
      }
      case 27: return fmt::format("\"x-grammar\":{}", escaped(ebnf()));
      case 28: return fmt::format("\"{}\":\"{}\"", draws_.one_in(2) ? "$id" : "$anchor", repeat(word(), small_or_many()));
      default: return fmt::format("\"{}\":{}", draws_.of(kRefusedKeywords), value(2));
    }
  }

  std::string regex_atom(int depth) {
    if (depth > kMostDeep || !draws_.one_in(3)) {
      return std::string(draws_.of(kAtoms));
    }
    if (draws_.one_in(4)) return "[" + repeat("\\p{L}", 1 + count()) + "]";
    return std::string(draws_.of(std::array<std::string_view, 4>{"(", "(?:", "(?P<n>", "(|"})) + regex(depth + 1) + ")";
  }

  std::string alternatives(bool is_lark, int depth) {
    std::string all;
    const std::size_t n = small_or_many();
    for (std::size_t i = 0; i < n && has_room(all); ++i) all += (i > 0 ? " | " : "") + sequence(is_lark, depth);
    n_drawn_ += all.size();
    return all;
  }
  std::string sequence(bool is_lark, int depth) {
    std::string all;
    for (std::size_t n = 1 + draws_.below(3); n > 0; --n) {
      std::string item;
      switch (depth > kMostDeep ? draws_.below(3) : draws_.below(6)) {
        case 0: item = fmt::format("{}{}", is_lark && draws_.one_in(3) ? "T" : "r", draws_.below(300)); break;
        case 1:
          item = is_lark && draws_.one_in(4) ? "\"a\"..\"\xC3\xA9\"" : fmt::format("\"{}\"", repeat(word(), small_or_many()));
          if (is_lark && draws_.one_in(4)) item += "i";
          break;
        case 2: item = is_lark ? "/[a-z]+/" : "[^a-z]"; break;
        case 3: item = "(" + alternatives(is_lark, depth + 1) + ")"; break;
        case 4: item = is_lark ? "[" + alternatives(is_lark, depth + 1) + "]" : "."; break;
        default: item = is_lark ? "/" + regex(4) + "/" : "[a-z0-9]"; break;
      }
      all += repeat(item + " ", small_or_many());
      if (draws_.one_in(3)) all.back() = draws_.one_in(2) ? '*' : '?';
      if (!is_lark && draws_.one_in(8)) all += draws_.of(std::array<std::string_view, 3>{"{3}", "{0,200}", "{1000,}"});
      if (is_lark && draws_.one_in(8)) all += draws_.of(std::array<std::string_view, 3>{"~3", "~ 0..200", "~1000..2000"});
      all += " ";
    }
    return all;
  }

  std::string texts() {
    return fields(1 + count(), [&](std::size_t i) { return fmt::format("\"<{}{}\"", word(), draws_.one_in(3) ? 0 : i); });
  }
  std::string list_of_formats(int depth) {
    return "[" + fields(1 + count(), [&](std::size_t) { return format(depth + 1); }) + "]";
  }
  std::string tag(int depth) {
    const std::string ends = draws_.one_in(4) ? "[" + texts() + "]" : fmt::format("\"</{}>\"", word());
    return fmt::format(R"({{"type":"tag","begin":"<{}>","content":{},"end":{}}})", word(), format(depth + 1), ends);
  }
  std::string list_of_tags(int depth) {
    return "[" + fields(1 + count(), [&](std::size_t) { return tag(depth + 1); }) + "]";
  }
  std::string format(int depth) {
    const std::string_view flag = draws_.one_in(2) ? "true" : "false";
    switch (depth > kMostDeep || draws_.is_at_end() ? draws_.below(3) : draws_.below(14)) {
      case 0: return fmt::format(R"({{"type":"const_string","value":"<{}"}})", repeat(word(), small_or_many()));
      case 1: return "{\"type\":\"any_text\"}";
      case 2: return fmt::format(R"({{"type":"any_text","excludes":[{}]}})", texts());
      case 3: return fmt::format(R"({{"type":"regex","pattern":{}}})", escaped(regex(2)));
      case 4: return fmt::format(R"({{"type":"grammar","grammar":{}}})", escaped(ebnf()));
      case 5: return fmt::format(R"({{"type":"json_schema","json_schema":{}}})", schema());
      case 6:
        return fmt::format(R"({{"type":"json_schema","style":"{}","json_schema":{}}})",
                           draws_.one_in(2) ? "qwen_xml" : "python", schema());
      case 7: return fmt::format(R"({{"type":"sequence","elements":{}}})", list_of_formats(depth));
      case 8: return fmt::format(R"({{"type":"or","elements":{}}})", list_of_formats(depth));
      case 9:
        return fmt::format(R"({{"type":"{}","content":{}}})",
                           draws_.of(std::array<std::string_view, 3>{"optional", "star", "plus"}), format(depth + 1));
      case 10: return fmt::format(R"({{"type":"repeat","min":{},"max":-1,"content":{}}})", count(), format(depth + 1));
      case 11: return tag(depth);
      case 12:
        return fmt::format(R"({{"type":"triggered_tags","triggers":["<",{}],"tags":{},"at_least_one":{}}})", texts(),
                           list_of_tags(depth), flag);
      default:
        return fmt::format(R"({{"type":"tags_with_separator","separator":"{}","tags":{},"at_least_one":{}}})", word(),
                           list_of_tags(depth), flag);
    }
  }

  Drawn& draws_;
  const std::size_t max_bytes_;
  std::size_t n_drawn_ = 0;  // by lists and repetitions, all together
};

}  // namespace baton::test
