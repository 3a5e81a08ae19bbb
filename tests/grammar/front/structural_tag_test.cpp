/// Structural tags: which texts they have, what masks say at the borders, and what is refused.
#include "grammar/front/structural_tag.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/match/matcher.h"
#include "grammar/match/token_trie.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

std::string tag(std::string_view format) { return R"({"type": "structural_tag", "format": )" + std::string(format) + "}"; }

std::shared_ptr<const Program> program(std::string_view text) {
  return testing::compiled(GrammarKind::structural_tag, text).program;
}

void expect_texts(std::string_view text, const std::vector<std::string_view>& members,
                  const std::vector<std::string_view>& others) {
  const auto compiled = program(text);
  for (const std::string_view one : members) EXPECT_TRUE(testing::accepts(*compiled, one)) << one << "\n" << text;
  for (const std::string_view one : others) EXPECT_FALSE(testing::accepts(*compiled, one)) << one << "\n" << text;
}

constexpr std::string_view kCalls = R"({"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [
  {"begin": "<tool_call>{\"name\": \"f\", \"arguments\": ", "end": "}</tool_call>",
   "content": {"type": "json_schema", "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}},
               "required": ["a"], "additionalProperties": false}}},
  {"type": "tag", "begin": "<tool_call>g", "content": {"type": "any_text"}, "end": ["</tool_call>", "!"]}]})";

TEST(StructuralTag, has_literal_texts_schemas_and_expressions_in_sequence) {
  expect_texts(tag(R"({"type": "sequence", "elements": [{"type": "const_string", "value": "a:"},
                       {"type": "regex", "pattern": "[0-9]+"}, {"type": "grammar", "grammar": "root ::= \";\" | \".\""},
                       {"type": "json_schema", "json_schema": {"type": "boolean"}, "style": "json"}]})"),
               {"a:12;true", "a:1.false"}, {"a:", "a:1true", "a:1;true ", "b"});
  expect_texts(tag(R"({"type": "or", "elements": [{"type": "const_string", "value": "a"},
                       {"type": "plus", "content": {"type": "const_string", "value": "b"}}]})"),
               {"a", "b", "bbb"}, {"", "ab"});
  expect_texts(tag(R"({"type": "sequence", "elements": [{"type": "optional", "content": {"type": "const_string", "value": "a"}},
                       {"type": "star", "content": {"type": "const_string", "value": "b"}},
                       {"type": "repeat", "min": 1, "max": 2, "content": {"type": "const_string", "value": "c"}},
                       {"type": "repeat", "min": 1, "max": -1, "content": {"type": "const_string", "value": "d"}}]})"),
               {"cd", "abbccddd"}, {"", "abb", "cccd"});
}

TEST(StructuralTag, lets_text_be_free_up_to_its_end) {
  expect_texts(tag(R"({"type": "any_text"})"), {"", "anything \xFF\n"}, {});
  expect_texts(tag(R"({"type": "any_text", "excludes": ["</a>", "b"]})"), {"", "</a", "<</a<"},
               {"</a>", "x</a>y", "<</a>", "ab"});
  // The first end is the end, also where it could begin earlier.
  expect_texts(tag(R"({"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": "aab"})"),
               {"<aab", "<aaab", "<xaaxaab"}, {"<", "<aa", "<aabx", "<aabaab"});
  expect_texts(tag(R"({"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": ""})"), {"<", "<abc"}, {"", "abc"});
  expect_texts(tag(R"({"type": "tag", "begin": "<", "content": {"type": "sequence", "elements": [
                       {"type": "const_string", "value": "x"}, {"type": "any_text"}]}, "end": ["/", ">"]})"),
               {"<x/", "<xyz>"}, {"<x", "<x//", "<y/"});
}

TEST(StructuralTag, triggers_decide_which_tags_follow) {
  expect_texts(
      tag(kCalls),
      {"", "free <text> {", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>",
       "a<tool_call>gxyz</tool_call>b<tool_call>g!", "<<tool_call>g!", "<tool_cal", "<tool_call"},
      {"<tool_call>", "<tool_call>h", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "a<tool_call>gx"});
  std::string once(kCalls);
  once.insert(once.size() - 1, R"(, "at_least_one": true, "stop_after_first": true)");
  expect_texts(tag(once), {"a<tool_call>g!", "<tool_call>g</tool_call>"},
               {"", "a", "<tool_call>g!b", "<tool_call>g!<tool_call>g!"});
  std::string some(kCalls);
  some.insert(some.size() - 1, R"(, "at_least_one": true, "excludes": ["<bad>"])");
  expect_texts(tag(some), {"a<tool_call>g!", "<tool_call>g!b<tool_call>g!", "<bad<tool_call>g!"},
               {"", "a", "<bad><tool_call>g!", "<tool_call>g!<bad>"});
  std::string maybe(kCalls);
  maybe.insert(maybe.size() - 1, R"(, "stop_after_first": true)");
  expect_texts(tag(maybe), {"", "a", "a<tool_call>g!"}, {"a<tool_call>g!b"});
}

TEST(StructuralTag, a_triggered_tag_may_stand_in_a_tag) {
  expect_texts(tag(R"({"type": "tag", "begin": "[", "end": "]", "content": {"type": "triggered_tags", "triggers": ["<a", "<ab"],
                       "tags": [{"begin": "<ab", "content": {"type": "const_string", "value": "1"}, "end": ">"},
                                {"begin": "<ac", "content": {"type": "const_string", "value": "2"}, "end": ">"}]}})"),
               {"[]", "[x<ab1>y<ac2>]", "[<]"}, {"[", "[]]", "[<ad]", "[<ab1>", "[<ab]"});
}

TEST(StructuralTag, separates_tags) {
  const std::string tags = R"({"type": "tags_with_separator", "separator": ", ", "tags": [
      {"begin": "a", "content": {"type": "regex", "pattern": "[0-9]"}, "end": ""},
      {"begin": "b", "content": {"type": "const_string", "value": ""}, "end": ";"}])";
  expect_texts(tag(tags + "}"), {"", "a1", "a1, b;", "b;, b;, a2"}, {"a1,", "a1b;", ", a1"});
  expect_texts(tag(tags + R"(, "at_least_one": true, "stop_after_first": true})"), {"a1", "b;"}, {"", "a1, b;"});
}

TEST(StructuralTag, reads_the_older_form) {
  expect_texts(
      R"({"type": "structural_tag", "structures": [{"begin": "<function=f>", "schema": {"type": "null"}, "end": "</function>"}],
                   "triggers": ["<function="]})",
      {"", "text", "a <function=f>null</function> b"}, {"<function=g>", "<function=f>1</function>"});
}

constexpr std::string_view kArguments =
    R"({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"},
    "kind": {"enum": ["x", "y"]}, "code": {"type": "string", "pattern": "^[a-z]+$"}, "any": {}, "on": {"type": "boolean"},
    "at": {"$ref": "#/$defs/point"}, "short": {"type": "string", "maxLength": 2}},
    "required": ["text", "n"], "additionalProperties": false, "$defs": {"point": {"type": "object"}}})";

TEST(StructuralTag, writes_arguments_as_xml) {
  const std::string schema = tag(R"({"type": "qwen_xml_parameter", "json_schema": )" + std::string(kArguments) + "}");
  const std::string begin = "<parameter=text>\na <b> \"c\"\n\n</parameter>\n<parameter=n>\n12\n</parameter>\n";
  const std::string more =
      "<parameter=text>\n\n</parameter>\n<parameter=n>\n1\n</parameter><parameter=kind>\ny\n</"
      "parameter>\n<parameter=code>\nabc\n"
      "</parameter>\n<parameter=any>\n[1, \"x\"]\n</parameter>\n<parameter=on>\ntrue\n</parameter>\n<parameter=at>\n{\"a\": "
      "1}\n"
      "</parameter>\n<parameter=short>\n<b\n</parameter>";
  expect_texts(schema, {begin, "\n" + begin, more, begin + "<parameter=any>\nfree text\n</parameter>"},
               {"", "<parameter=text>\na\n</parameter>", begin + "<parameter=other>\n1\n</parameter>",
                begin + "<parameter=kind>\nz\n</parameter>", begin + "<parameter=code>\nA\n</parameter>",
                begin + "<parameter=short>\nabc\n</parameter>", begin + "<parameter=at>\n1\n</parameter>",
                "<parameter=text>\na</parameter>\n\n</parameter>\n<parameter=n>\n12\n</parameter>",
                "<parameter=text>\na\n<parameter=n>\n12\n</parameter>"});
  expect_texts(tag(R"({"type": "json_schema", "style": "qwen_xml", "json_schema": true})"),
               {"", "\n<parameter=x>\nfree\n</parameter>\n"}, {"x"});
}

TEST(StructuralTag, writes_arguments_as_keys_and_values) {
  const std::string schema =
      tag(R"({"type": "json_schema", "style": "glm_xml", "json_schema": )" + std::string(kArguments) + "}");
  const std::string begin =
      "<arg_key>text</arg_key>\n<arg_value>a <b>\n\"c\"\n</arg_value>\n<arg_key>n</arg_key><arg_value>12</arg_value>";
  const std::string more =
      "<arg_key>text</arg_key><arg_value></arg_value><arg_key>n</arg_key>\n<arg_value>1</arg_value><arg_key>kind</arg_key>"
      "<arg_value>y</arg_value><arg_key>at</arg_key><arg_value>{\"a\": 1}</arg_value><arg_key>short</arg_key><arg_value><b"
      "</arg_value>\n";
  expect_texts(
      schema, {begin, "\n" + begin, more},
      {"", "<arg_key>text</arg_key><arg_value>a</arg_value>", begin + "<arg_key>other</arg_key><arg_value>1</arg_value>",
       begin + "<arg_key>kind</arg_key><arg_value>z</arg_value>", begin + "<arg_key>short</arg_key><arg_value>abc</arg_value>",
       begin + "<arg_key>at</arg_key><arg_value>1</arg_value>", "<arg_key>text</arg_key>\n\n<arg_value>a</arg_value>",
       "<arg_key>text</arg_key><arg_value>a</arg_value></arg_value><arg_key>n</arg_key><arg_value>12</arg_value>"});
  expect_texts(tag(R"({"type": "json_schema", "style": "glm_xml", "json_schema": true})"),
               {"", "\n<arg_key>x</arg_key>\n<arg_value>free\n</arg_value>\n"}, {"x"});
}

TEST(StructuralTag, writes_arguments_as_python) {
  const std::string schema =
      tag(R"({"type": "json_schema", "style": "python", "json_schema": )" + std::string(kArguments) + "}");
  expect_texts(schema, {R"(text="a", n=1)", R"(text="", n=-2, kind="x", any=[true], on=False, at={"a": null}, short="ab")"},
               {"", R"(text="a")", R"(n=1, text="a")", R"(text="a", n=1, )", R"(text="a", n=1, on=false)", R"(text="a",n=1)",
                R"(text="a", n=1, other=2)"});
  expect_texts(
      tag(R"({"type": "json_schema", "style": "python", "json_schema": {"properties": {"a": {"type": "integer"}, "b": {}}}})"),
      {"", "a=1", "b=2", "a=1, b={}", "c=1", "a=1, c=1, d=[2]"}, {"a=1.5, ", ", b=1", "a=1 b=1"});
}

bool has(const std::vector<std::uint32_t>& mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

TEST(StructuralTag, masks_exclude_only_what_would_break_a_marker) {
  std::vector<std::string> bytes{""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  const std::vector<std::string> words{"<tool_call>",
                                       "<tool_call>{\"name",
                                       "<tool_call>{\"nope",
                                       "text <tool",
                                       "_call>",
                                       "_call>g",
                                       "_call>h",
                                       "x<tool_call>g!y",
                                       "!\n",
                                       "</tool_call>"};
  bytes.insert(bytes.end(), words.begin(), words.end());
  const auto vocabulary = std::make_shared<TokenTrie>(bytes, std::vector<TokenId>{0});
  Matcher matcher(program(tag(kCalls)), vocabulary);
  const auto allowed = [&](std::string_view before) {
    MatcherState state = matcher.start();
    EXPECT_TRUE(matcher.accept(state, before)) << before;
    std::vector<std::uint32_t> mask(vocabulary->n_words());
    EXPECT_TRUE(matcher.mask(state, mask));
    std::string all = has(mask, 0) ? "end" : "";
    int n_bytes = 0;
    for (TokenId token = 1; token <= 256; ++token) n_bytes += has(mask, token) ? 1 : 0;
    all += "+" + std::to_string(n_bytes);
    for (std::size_t i = 0; i < words.size(); ++i)
      if (has(mask, static_cast<TokenId>(257 + i))) all += "|" + words[i];
    return all;
  };
  // Free text: all bytes, and every token but the two that no tag begins with.
  EXPECT_EQ(allowed("hello "),
            "end+256|<tool_call>|<tool_call>{\"name|text <tool|_call>|_call>g|_call>h|x<tool_call>g!y|!\n|</tool_call>");
  EXPECT_EQ(allowed("hello <tool"),
            "end+256|<tool_call>|<tool_call>{\"name|text <tool|_call>|_call>g|x<tool_call>g!y|!\n|</tool_call>");
  EXPECT_EQ(allowed("hello <tool_call>"), "+2");
  EXPECT_EQ(allowed("hello <tool_call>g a"),
            "+256|<tool_call>|<tool_call>{\"name|<tool_call>{\"nope|text "
            "<tool|_call>|_call>g|_call>h|x<tool_call>g!y|!\n|</tool_call>");
  EXPECT_EQ(allowed("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call"), "+1");
  EXPECT_EQ(matcher.forced_bytes(
                [&] {
                  MatcherState state = matcher.start();
                  EXPECT_TRUE(matcher.accept(state, "<tool_call>{"));
                  return state;
                }(),
                100),
            "\"name\": \"f\", \"arguments\": {");
}

/// Single bytes are the tokens 1 to 256; 257 and 258 are special.
constexpr TokenId kCall = 257;
constexpr TokenId kEnd = 258;

std::shared_ptr<const TokenTrie> special_vocabulary() {
  std::vector<std::string> bytes{""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.resize(259);
  return std::make_shared<TokenTrie>(std::move(bytes), std::vector<TokenId>{0},
                                     SpecialTokens{{"[CALL]", kCall}, {"[END]", kEnd}, {"[EOS]", 0}});
}

std::string tag_with_tokens(std::string_view format) {
  return R"({"type": "structural_tag", "tokens": ["[CALL]", "[END]"], "format": )" + std::string(format) + "}";
}

/// Whether a matcher takes a text in which "{" and "}" stand for the two special tokens, up to where it may end.
bool takes(Matcher& matcher, std::string_view text) {
  MatcherState state = matcher.start();
  for (const char c : text) {
    const TokenId token = c == '{' ? kCall : c == '}' ? kEnd : static_cast<unsigned char>(c) + 1;
    if (!matcher.accept(state, token)) return false;
  }
  return matcher.is_complete(state);
}

TEST(StructuralTag, special_tokens_stand_where_literal_texts_name_them) {
  const auto vocabulary = special_vocabulary();
  EXPECT_FALSE(vocabulary->special_token("[EOS]")) << "it ends texts";
  Matcher calls(program(tag_with_tokens(R"({"type": "tags_with_separator", "separator": "", "at_least_one": true, "tags": [
                  {"begin": "[CALL]f[END]", "content": {"type": "json_schema", "json_schema": {"const": 1}}, "end": "[END]"}]})")),
                vocabulary);
  for (const std::string_view text : {"{f}1}", "{f}1}{f}1}"}) EXPECT_TRUE(takes(calls, text)) << text;
  for (const std::string_view text : {"", "{", "[CALL]f}1}", "{f[END]1}", "{f}1[END]", "f}1}", "{f}1}x", "}f}1}"})
    EXPECT_FALSE(takes(calls, text)) << text;
  std::vector<std::uint32_t> mask(vocabulary->n_words());
  ASSERT_TRUE(calls.mask(calls.start(), mask));
  for (TokenId token = 0; token < vocabulary->n_vocab(); ++token) EXPECT_EQ(has(mask, token), token == kCall) << token;
  // Drafts hold them too; nothing else may follow "f", so it is not left out.
  const auto bytes = [](std::string_view text) {
    std::vector<TokenId> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c) + 1);
    return tokens;
  };
  MatcherWork work;
  EXPECT_EQ(calls.forced_tokens(calls.start(), 100, bytes, work), (std::vector<TokenId>{kCall, 'f' + 1, kEnd, '1' + 1, kEnd}));
  EXPECT_EQ(calls.forced_tokens(calls.start(), 2, bytes, work), (std::vector<TokenId>{kCall, 'f' + 1}));
  EXPECT_EQ(calls.forced_bytes(calls.start(), 9), "");
}

TEST(StructuralTag, free_text_stops_at_special_tokens_and_does_not_spell_them) {
  const auto vocabulary = special_vocabulary();
  Matcher free(program(tag_with_tokens(R"({"type": "triggered_tags", "triggers": ["[CALL]", "<c>"], "tags": [
                 {"begin": "[CALL]f", "content": {"type": "any_text"}, "end": ["[END]", "!"]},
                 {"begin": "<c>", "content": {"type": "any_text"}, "end": "[END]"}]})")),
               vocabulary);
  for (const std::string_view text : {"", "text [CALL", "a{f}", "a{fxy!b{f}c", "<c>x}", "{f}<c>}", "[END] alone", "{f[CALL]!"})
    EXPECT_TRUE(takes(free, text)) << text;
  for (const std::string_view text : {"[CALL]f!", "{", "{g!", "}", "a}b", "{f[END]!", "<c>x[END]", "<c>!", "{f{f!"})
    EXPECT_FALSE(takes(free, text)) << text;
  Matcher inner(program(tag_with_tokens(R"({"type": "sequence", "elements": [{"type": "const_string", "value": "[CALL]"},
                  {"type": "structural_tag", "format": {"type": "const_string", "value": "[CALL]"}},
                  {"type": "const_string", "value": "[END]"}]})")),
                vocabulary);
  EXPECT_TRUE(takes(inner, "{[CALL]}")) << "a tag inside has tokens of its own";
  EXPECT_FALSE(takes(inner, "{{}"));
  EXPECT_NE(testing::refusal(GrammarKind::structural_tag, tag_with_tokens(R"({"type": "tag", "begin": "", "end": "x[END]",
              "content": {"type": "any_text"}})"))
                .find("after other text"),
            std::string::npos);
  EXPECT_NE(testing::refusal(GrammarKind::structural_tag, tag_with_tokens(R"({"type": "triggered_tags", "triggers": ["[CA"],
              "tags": [{"begin": "[CALL]f", "content": {"type": "any_text"}, "end": "!"}]})"))
                .find("cuts"),
            std::string::npos);
}

/// The begin of a call's tag has the name of the tool.
TEST(StructuralTag, an_error_of_a_schema_says_in_which_tag_and_where_it_is) {
  const auto with_tools = [](std::string_view format) {
    return tag(fmt::format(R"({{"type": "triggered_tags", "triggers": ["<f="], "tags": [
      {{"begin": "<f=sum>", "content": {{"type": "json_schema", "json_schema": {{}}}}, "end": "</f>"}},
      {{"begin": "<f=find>\n", "content": {}, "end": "</f>"}}]}})",
                           format));
  };
  for (const auto& [style, where] : {std::pair("json", "#/properties/a~1b/not is not supported"),
                                     {"qwen_xml", "#/properties/a~1b/not is not supported"},
                                     {"glm_xml", "#/properties/a~1b/not is not supported"},
                                     {"python", "has 'a/b', which this format of calls cannot write"}}) {
    const std::string message = testing::refusal(
        GrammarKind::structural_tag,
        with_tools(fmt::format(
            R"({{"type": "json_schema", "style": "{}", "json_schema": {{"type": "object", "properties": {{"a/b": {{"not": {{}}}}}}}}}})",
            style)));
    EXPECT_NE(message.find(where), std::string::npos) << message;
    EXPECT_NE(message.find("(in the tag that begins with '<f=find>\\n')"), std::string::npos) << message;
    EXPECT_EQ(message.find("sum"), std::string::npos) << message;
  }
  const std::string inner = testing::refusal(
      GrammarKind::structural_tag,
      tag(R"({"type": "tag", "begin": "<outer>", "end": "x", "content": {"type": "tag", "begin": "<inner>", "end": "y", "content":
          {"type": "json_schema", "json_schema": {"if": {}}}}})"));
  EXPECT_NE(inner.find("#/if is not supported (in the tag that begins with '<inner>')"), std::string::npos) << inner;
  EXPECT_EQ(inner.find("outer"), std::string::npos) << inner;
}

TEST(StructuralTag, refuses_by_name_what_it_does_not_know) {
  const auto refusal = [](std::string_view text) { return testing::refusal(GrammarKind::structural_tag, text); };
  EXPECT_EQ(refusal("[]"), "the structural tag: # must be an object");
  EXPECT_EQ(refusal("{}"), "the structural tag: # has no 'format'");
  EXPECT_EQ(refusal(R"({"type": "x"})"), "the structural tag: #/type must be 'structural_tag'");
  EXPECT_EQ(refusal(tag(R"({"type": "token", "token": 1})")), "the structural tag: #/format/type 'token' is not supported");
  EXPECT_EQ(refusal(tag(R"({"type": "any_text", "x": 1})")), "the structural tag: #/format/x is not supported in 'any_text'");
  EXPECT_EQ(refusal(tag(R"({"type": "sequence", "elements": []})")),
            "the structural tag: #/format/elements must be a list that is not empty");
  EXPECT_EQ(refusal(tag(R"({"type": "sequence", "elements": [{"type": "const_string"}]})")),
            "the structural tag: #/format/elements/0 has no 'value'");
  EXPECT_EQ(refusal(tag(R"({"type": "json_schema", "json_schema": {}, "style": "minimax_xml"})")),
            "the structural tag: #/format/style 'minimax_xml' is not supported");
  EXPECT_EQ(
      refusal(tag(
          R"({"type": "triggered_tags", "triggers": ["<"], "tags": [{"begin": "a", "content": {"type": "any_text"}, "end": "b"}]})")),
      "the structural tag: #/format/tags/0 begins with none of the triggers");
  EXPECT_EQ(
      refusal(tag(
          R"({"type": "triggered_tags", "triggers": [""], "tags": [{"begin": "a", "content": {"type": "any_text"}, "end": "b"}]})")),
      "the structural tag: #/format/triggers must be a list of texts that are not empty");
  EXPECT_EQ(refusal(tag(R"({"type": "repeat", "content": {"type": "any_text"}, "min": 2, "max": 1})")),
            "the structural tag: #/format/max is smaller than min");
  EXPECT_EQ(refusal(tag(R"({"type": "qwen_xml_parameter", "json_schema": {"properties": {"a>": {}}}})")),
            "the JSON schema: #/properties has 'a>', which this format of calls cannot write");
  EXPECT_EQ(refusal(tag(R"({"type": "json_schema", "style": "python", "json_schema": {"anyOf": []}})")),
            "the JSON schema: #/anyOf is not supported in this format of calls");
}

/// Where the schema stands and whose it is are told by the tag; where in it is a JSON pointer, in every style.
TEST(StructuralTag, an_error_of_a_schema_names_the_field_of_the_request_that_holds_it) {
  const auto refused = [](std::string_view style, std::string_view schema) {
    const std::string text = tag(fmt::format(
        R"({{"type": "tag", "begin": "<f>", "end": "</f>", "content": {{"type": "json_schema", "style": "{}", "name": "find",
            "field": "tools[1].function.parameters", "json_schema": {}}}}})",
        style, schema));
    const auto result = compile_grammar({.kind = GrammarKind::structural_tag, .text = text}, {}, {});
    EXPECT_FALSE(result) << text;
    const Error error = result ? Error{} : result.error();
    EXPECT_EQ(error.param, "tools[1].function.parameters") << error.message;
    constexpr std::string_view kBegin = "'tools[1].function.parameters' of \"find\": the JSON schema: ";
    EXPECT_TRUE(error.message.starts_with(kBegin)) << error.message;
    return error.message.substr(std::min(kBegin.size(), error.message.size()));
  };
  for (const char* style : {"json", "qwen_xml", "glm_xml", "python"}) {
    SCOPED_TRACE(style);
    EXPECT_EQ(refused(style, R"({"type": "object", "properties": {"x": {"not": {}}}})"), "#/properties/x/not is not supported");
    EXPECT_EQ(refused(style, R"({"type": "object", "properties": {"x": {"items": {"type": "sting"}}}})"),
              R"(#/properties/x/items/type is "sting", which is not a type)");
    EXPECT_TRUE(
        refused(style, R"({"type": "object", "properties": {"x": {}}, "required": 1})").starts_with("#/required must be"));
    EXPECT_EQ(refused(style, R"({"type": "object", "$schema": 1})"), "#/$schema must be a string, not an integer");
  }
  EXPECT_EQ(refused("qwen_xml", R"({"properties": {"x": {"enum": ["a", "b"], "minLength": 1}}})"),
            "#/properties/x: enum beside other keywords about strings is not supported in this format of calls");
  EXPECT_EQ(refused("python", R"({"additionalProperties": {"type": "string"}})"),
            "#/additionalProperties must be true or false in this format of calls");
  EXPECT_EQ(testing::refusal(GrammarKind::structural_tag,
                             tag(R"({"type": "json_schema", "json_schema": {"not": {}}, "name": "f", "field": 1})")),
            "the structural tag: #/format/field must be a string");
}

}  // namespace
}  // namespace baton::grammar
