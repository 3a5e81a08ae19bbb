/// Grammars of answers in harmony: every text of one is read as what it demands.
#include "parsers/harmony/grammar.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/message_format.h"
#include "support/grammar_texts.h"

namespace baton::parsers {
namespace {

const grammar::GrammarSource kNumber{.kind = grammar::GrammarKind::regex, .text = "[0-9]+"};
constexpr std::string_view kThought = "<|channel|>analysis<|message|>so 1 <|e<|end|><|start|>assistant";
constexpr std::string_view kWeather = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>";

MessageFormat format() { return *MessageFormat::make("openai", "openai_gptoss", ""); }

std::vector<Tool> weather_and_now() {
  return {
      {.name = "get_weather",
       .parameters = *json::parse(
           R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false})",
           "tools"),
       .is_strict = true},
      {.name = "now"}};
}

bool accepts(const grammar::GrammarSource& source, std::string_view text) {
  return testing::accepts(*testing::compiled(source.kind, source.text).program, text);
}

/// The grammar of an answer that the prompt's end leaves to the model.
grammar::GrammarSource behind(std::string_view prompt, const grammar::GrammarSource& source, bool is_answer) {
  return format().behind_reasoning(source, is_answer, format().begin_after(prompt), {}).value();
}

std::string joined(std::string_view first, std::string_view second, std::string_view third = "") {
  return std::string(first) + std::string(second) + std::string(third);
}

TEST(HarmonyGrammar, content_is_that_of_the_final_message) {
  const grammar::GrammarSource source = behind("<|start|>assistant", kNumber, /*is_answer=*/false);
  const std::string_view final = "<|channel|>final<|message|>";
  for (const std::string& text :
       {joined(final, "12"), joined(kThought, final, "12"), joined(kThought, kThought, joined(final, "1")),
        std::string("<|channel|>final <|constrain|>json<|message|>12")})
    EXPECT_TRUE(accepts(source, text)) << text;
  for (const std::string& text :
       {std::string("12"), joined(final, "x"), joined(final, ""), joined(kThought, "12"),
        std::string("<|channel|>analysis<|message|>12"), std::string("<|channel|>commentary<|message|>12")})
    EXPECT_FALSE(accepts(source, text)) << text;
  const grammar::GrammarSource thinks =
      behind("<|start|>assistant<|channel|>analysis<|message|>", kNumber, /*is_answer=*/false);
  EXPECT_TRUE(accepts(thinks, joined("so<|end|><|start|>assistant", final, "12")));
  EXPECT_FALSE(accepts(thinks, joined(final, "12")));
  EXPECT_EQ(behind("<|start|>assistant<|channel|>final<|message|>1", kNumber, /*is_answer=*/false).text, kNumber.text);
}

TEST(HarmonyGrammar, a_demanded_call_follows_analysis_alone) {
  const std::vector<Tool> tools = weather_and_now();
  const auto demanded = [&](const ToolChoice& choice, std::string_view prompt) {
    return behind(prompt, **format().grammar({.tools = tools, .choice = choice}), /*is_answer=*/true);
  };
  const std::string_view city = R"({"city": "A"})";
  for (const ToolChoice& choice :
       {ToolChoice{.kind = ToolChoice::Kind::required}, ToolChoice{.kind = ToolChoice::Kind::named, .name = "get_weather"}}) {
    const grammar::GrammarSource source = demanded(choice, "<|start|>assistant");
    for (const std::string& text :
         {joined(kWeather, city), joined(kThought, kWeather, city),
          joined(kThought, " to=functions.get_weather<|channel|>commentary json<|message|>", city),
          joined("", " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>", city)})
      EXPECT_TRUE(accepts(source, text)) << text;
    for (const std::string& text : {joined(kWeather, "{}"), joined(kWeather, city, "<|end|><|start|>assistant"),
                                    std::string("<|channel|>final<|message|>x"), joined(city, "")})
      EXPECT_FALSE(accepts(source, text)) << text;
    EXPECT_EQ(accepts(source, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"),
              choice.kind == ToolChoice::Kind::required);
    // A message that the prompt has begun ends first.
    const grammar::GrammarSource later = demanded(choice, "<|start|>assistant<|channel|>final<|message|>I ");
    EXPECT_TRUE(accepts(later, joined("look.<|end|><|start|>assistant", kWeather, city)));
    EXPECT_FALSE(accepts(later, joined(kWeather, city)));
  }
}

TEST(HarmonyGrammar, a_free_answer_keeps_to_the_schemas_of_strict_tools) {
  const std::vector<Tool> tools = weather_and_now();
  const grammar::GrammarSource free = behind("<|start|>assistant", **format().grammar({.tools = tools}), /*is_answer=*/true);
  const std::string_view preamble = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
  EXPECT_TRUE(accepts(free, joined(kThought, preamble, joined(kWeather, R"({"city": "A"})"))));
  EXPECT_TRUE(accepts(free, joined(kThought, "<|channel|>final<|message|>Any text.")));
  EXPECT_TRUE(accepts(free, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"x\": 1}"));
  EXPECT_FALSE(accepts(free, joined(kWeather, "{}")));
  EXPECT_FALSE(accepts(free, "Any text."));
  const auto with_content = format().grammar({.tools = tools, .content = kNumber});
  const grammar::GrammarSource either = behind("<|start|>assistant", **with_content, /*is_answer=*/true);
  EXPECT_TRUE(accepts(either, joined(kThought, "<|channel|>final<|message|>12")));
  EXPECT_TRUE(accepts(either, joined(kWeather, R"({"city": "A"})")));
  EXPECT_FALSE(accepts(either, joined(preamble, "<|channel|>final<|message|>12")));
  EXPECT_FALSE(accepts(either, "<|channel|>final<|message|>x"));
  const std::vector<Tool> loose{{.name = "now"}};
  EXPECT_FALSE(*format().grammar({.tools = loose}));
}

TEST(HarmonyGrammar, markers_that_are_special_tokens_are_demanded_as_tokens) {
  const std::vector<Tool> tools = weather_and_now();
  const auto made = format();
  const auto answer =
      made.grammar({.tools = tools, .choice = {.kind = ToolChoice::Kind::required}, .special_tokens = made.markers()});
  for (const auto& [source, is_answer] : {std::pair(**answer, true), std::pair(kNumber, false)}) {
    const auto behind = made.behind_reasoning(source, is_answer, {.may_reason = true}, made.markers());
    const auto program = testing::compiled(behind->kind, behind->text).program;
    EXPECT_GE(program->token_texts().size(), 5u);
    EXPECT_FALSE(testing::accepts(*program, joined(kThought, is_answer ? kWeather : "<|channel|>final<|message|>",
                                                   is_answer ? R"({"city": "A"})" : "12")));
  }
}

TEST(HarmonyGrammar, refuses_names_that_headers_cannot_hold) {
  const std::vector<Tool> tools{{.name = "a b"}};
  EXPECT_FALSE(format().grammar({.tools = tools, .choice = {.kind = ToolChoice::Kind::required}}));
  const std::vector<Tool> other{{.name = "a"}};
  EXPECT_FALSE(format().grammar({.tools = other, .choice = {.kind = ToolChoice::Kind::named, .name = "b"}}));
}

}  // namespace
}  // namespace baton::parsers
