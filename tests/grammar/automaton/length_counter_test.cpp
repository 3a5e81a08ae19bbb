/// Tests of lengths that are counted beside an automaton: against all short texts, and at the bounds of long ones.
#include "grammar/automaton/length_counter.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/automaton/configurations.h"
#include "grammar/automaton/regex.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::accepts;
using testing::compiled;
using testing::refusal;

constexpr int kLongest = 7;

/// All texts of up to kLongest characters of three, by a loop of their own.
std::vector<std::string> all_texts() {
  std::vector<std::string> all{""};
  std::size_t begin = 0;
  for (int length = 1; length <= kLongest; ++length) {
    const std::size_t end = all.size();
    for (; begin < end; ++begin)
      for (const char* character : {"a", "\n", "\xC3\xA9"}) all.push_back(all[begin] + character);
  }
  return all;
}

int length_of(std::string_view text) {
  int n = 0;
  for (const char c : text) n += (c & 0xC0) != 0x80;
  return n;
}

std::string in_json(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) all += c == '\n' ? std::string("\\n") : std::string(1, c);
  return all + '"';
}

struct PatternCase {
  const char* pattern;
  bool (*matches)(const std::string& text);  ///< independent of the automata
};

const std::vector<PatternCase> kPatterns{
    {"", [](const std::string&) { return true; }},
    {"^(\\n|a)*$", [](const std::string& text) { return text.find('\xC3') == std::string::npos; }},
    {"^(aaa)*$",
     [](const std::string& text) { return text.find_first_not_of('a') == std::string::npos && text.size() % 3 == 0; }},
    {"^(aa|aaaaa)*$",
     [](const std::string& text) {
       return text.find_first_not_of('a') == std::string::npos && text.size() != 1 && text.size() != 3;
     }},
    {"a", [](const std::string& text) { return text.find('a') != std::string::npos; }},
    {"^a?(\\n\xC3\xA9)*$", [](const std::string& text) {
       std::string rest = text.starts_with('a') ? text.substr(1) : text;
       while (rest.starts_with("\n\xC3\xA9")) rest.erase(0, 3);
       return rest.empty();
     }}};

/// Whether texts are accepted, and beginnings allowed, exactly if they should be.
void expect_exact(const PatternCase& one, int min, std::optional<int> max) {
  const std::string pattern =
      one.pattern[0] == '\0' ? "" : fmt::format(R"("pattern": {}, )", json::dump(json::Value(one.pattern)));
  const std::string schema = fmt::format(R"({{"type": "string", {}"minLength": {}{}}})", pattern, min,
                                         max ? fmt::format(", \"maxLength\": {}", *max) : "");
  std::set<std::string> beginnings;
  std::vector<std::pair<std::string, bool>> texts;
  for (const std::string& text : all_texts()) {
    const bool is_in = one.matches(text) && length_of(text) >= min && (!max || length_of(text) <= *max);
    texts.emplace_back(in_json(text), is_in);
    for (std::size_t n = 0; is_in && n <= texts.back().first.size(); ++n) beginnings.insert(texts.back().first.substr(0, n));
  }
  if (beginnings.empty()) {
    EXPECT_NE(refusal(GrammarKind::json_schema, schema).find("no text can match"), std::string::npos) << schema;
    return;
  }
  const auto grammar = compiled(GrammarKind::json_schema, schema);
  Configurations configurations(*grammar.program);
  const auto behind = [&](std::string_view text) {
    auto at = configurations.start();
    for (const char byte : text)
      if (at != Configurations::kDead) at = configurations.step(at, static_cast<unsigned char>(byte));
    return at;
  };
  for (const auto& [text, is_in] : texts) {
    const auto at = behind(text);
    ASSERT_EQ(at != Configurations::kDead && configurations.is_complete(at), is_in) << schema << text;
    if (!max || *max > kLongest) continue;  // else every text that an allowed beginning has is looked at
    const std::string_view begin = std::string_view(text).substr(0, text.size() - 1);
    ASSERT_EQ(behind(begin) != Configurations::kDead, beginnings.contains(std::string(begin))) << schema << begin;
  }
}

TEST(LengthCounter, has_exactly_the_texts_within_its_bounds) {
  for (const PatternCase& pattern : kPatterns)
    for (const int min : {0, 1, 3, 6})
      for (const std::optional<int> max :
           {std::optional<int>(), std::optional(0), std::optional(1), std::optional(4), std::optional(6), std::optional(1000)})
        expect_exact(pattern, min, max);
}

TEST(LengthCounter, bounds_of_long_texts) {
  const auto text = [](int n) { return '"' + std::string(static_cast<std::size_t>(n), 'a') + '"'; };
  for (const auto& [min, max] : {std::pair(0, 2083), {700, 2083}, {2083, 2083}, {2000, 2010}}) {
    const auto grammar =
        compiled(GrammarKind::json_schema, fmt::format(R"({{"type": "string", "minLength": {}, "maxLength": {}}})", min, max));
    for (const int n : {min, max, (min + max) / 2}) EXPECT_TRUE(accepts(*grammar.program, text(n))) << min << " " << n;
    for (const int n : {min - 1, max + 1}) EXPECT_FALSE(n >= 0 && accepts(*grammar.program, text(n))) << min << " " << n;
    EXPECT_TRUE(accepts(*grammar.program, "\"" + std::string(static_cast<std::size_t>(max) - 2, 'b') + "\\ud83d\\ude00\\\"\""));
  }
  const auto url =
      compiled(GrammarKind::json_schema, R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})");
  EXPECT_TRUE(accepts(*url.program, "\"https://a/" + std::string(2073, 'x') + '"'));
  EXPECT_FALSE(accepts(*url.program, "\"https://a/" + std::string(2074, 'x') + '"'));
  EXPECT_FALSE(accepts(*url.program, "\"https://a/" + std::string(2071, 'x') + "%20\"")) << "no room for the second digit";
  const auto names = compiled(GrammarKind::json_schema, R"({"type": "object", "propertyNames": {"maxLength": 3000}})");
  EXPECT_TRUE(accepts(*names.program, "{" + text(3000) + ": 1}"));
  EXPECT_FALSE(accepts(*names.program, "{" + text(3001) + ": 1}"));
}

TEST(LengthCounter, strings_of_other_formats_of_calls_are_counted_too) {
  const auto grammar = compiled(GrammarKind::structural_tag, R"({"format": {"type": "qwen_xml_parameter", "json_schema":
      {"properties": {"s": {"type": "string", "minLength": 2, "maxLength": 3000, "pattern": "^[^b]*$"}}, "required": ["s"],
       "additionalProperties": false}}})");
  const auto call = [](const std::string& text) { return "<parameter=s>\n" + text + "\n</parameter>"; };
  EXPECT_TRUE(accepts(*grammar.program, call(std::string(2999, 'a') + "\xC3\xA9")));
  EXPECT_TRUE(accepts(*grammar.program, call("\n</par")));
  for (const std::string& text : {std::string(3001, 'a'), std::string("a"), std::string("aab")})
    EXPECT_FALSE(accepts(*grammar.program, call(text))) << text.size();
}

TEST(LengthCounter, what_bounds_say) {
  EXPECT_EQ(refusal(GrammarKind::json_schema, R"({"type": "string", "maxLength": 1e300})"), "");
  EXPECT_EQ(refusal(GrammarKind::json_schema, R"({"type": "string", "maxLength": 12.0})"), "");
  EXPECT_NE(refusal(GrammarKind::json_schema, R"({"maxLength": 1.5})").find("#/maxLength must be an integer"),
            std::string::npos);
  EXPECT_NE(refusal(GrammarKind::json_schema, R"({"minLength": 1e10})").find("#/minLength is over 1073741824"),
            std::string::npos);
  EXPECT_NE(refusal(GrammarKind::json_schema, R"({"type": "string", "pattern": "^(ab)*$", "minLength": 5, "maxLength": 5})")
                .find("no text can match"),
            std::string::npos);
}

/// What reaches a state far from both bounds is one place; near them each count is another.
TEST(LengthCounter, counts_far_from_their_bounds_are_one) {
  UnlimitedWork work;
  Dfa dfa(work.meter());  // a*b
  dfa.add_state(false);
  dfa.add_state(true);
  dfa.next[0]['a'] = 0;
  dfa.next[0]['b'] = 1;
  const CompactDfa compact(dfa, {true, false});
  const auto counter_of = [&](std::int32_t min, std::int32_t max) {
    return *LengthCounter::of(compact, {.min = min, .max = max}, work.meter());
  };
  const LengthCounter limited = counter_of(1000, 5000);
  EXPECT_EQ(limited.representative(3), limited.representative(500));
  EXPECT_EQ(limited.representative(1000), limited.representative(4000));
  EXPECT_NE(limited.representative(500), limited.representative(1000));
  EXPECT_NE(limited.representative(4990), limited.representative(4991));
  EXPECT_TRUE(limited.are_alike(4980, 1000, 10));
  EXPECT_FALSE(limited.are_alike(4995, 1000, 10));
  ASSERT_TRUE(limited.twin(4900).has_value());
  EXPECT_EQ(limited.twin(4900)->n_bytes, 99) << "one more character must follow";
  EXPECT_FALSE(limited.twin(4998).has_value());
  EXPECT_TRUE(limited.allows(0, 4999));
  EXPECT_FALSE(limited.allows(0, 5000));
  EXPECT_FALSE(limited.allows(1, 999));
  const LengthCounter least = counter_of(10, -1);
  EXPECT_EQ(least.next(10), 10) << "it counts no further than it must";
  EXPECT_EQ(least.representative(10), 10);
}

/// 50 ms of processor time are about 1.6 million steps (see GrammarLimits).
TEST(LengthCounter, lengths_beside_formats_and_patterns_take_few_steps) {
  for (const char* schema : {R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
                             R"({"type": "string", "maxLength": 2147483648})",
                             R"({"type": "string", "format": "uri-reference", "maxLength": 65535})",
                             R"({"type": "string", "format": "email", "maxLength": 320})",
                             R"({"type": "string", "format": "hostname", "minLength": 3, "maxLength": 253})",
                             R"({"type": "string", "pattern": "^[a-z0-9-]+(\\.[a-z0-9-]+)*$", "maxLength": 1000000})",
                             R"({"type": "string", "minLength": 100000, "maxLength": 1000000})",
                             R"({"type": "string", "format": "date-time", "minLength": 20, "maxLength": 35})"}) {
    const auto result = compile_grammar({.kind = GrammarKind::json_schema, .text = schema},
                                        {.work = {.steps = 1'600'000, .bytes = 32 << 20}}, {});
    EXPECT_TRUE(result.has_value()) << schema << ": " << result.error().message;
    if (!result) continue;
    EXPECT_LT(result->program->n_states(), 5000u) << schema;
  }
}

}  // namespace
}  // namespace baton::grammar
