/// Answers in harmony, streamed and in one piece.
#include "parsers/harmony/parser.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

Golden harmony(std::string_view text, std::string_view shown) {
  return {
      .tool_parser = "openai", .reasoning_parser = "openai_gptoss", .begins_in_reasoning = false, .text = text, .shown = shown};
}

void expect_harmony(std::string_view text, std::string_view shown) {
  for (const bool is_whole : {false, true}) {
    Golden golden = harmony(text, shown);
    golden.is_whole = is_whole;
    expect_golden(golden);
  }
}

TEST(Harmony, analysis_is_reasoning_and_the_final_message_is_content) {
  expect_harmony("<|channel|>analysis<|message|>So: 1 < 2.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
                 "|think So: 1 < 2.|Yes.");
  expect_harmony("<|channel|>final<|message|> Yes \n", "| Yes \n");
  expect_harmony("<|channel|>final <|constrain|>json<|message|>{\"a\": 1}", "|{\"a\": 1}");
  expect_harmony("<|message|>No channel.<|end|>", "|No channel.");
  expect_harmony("<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|><|return|>", "");
  expect_harmony("", "");
}

TEST(Harmony, messages_to_functions_are_calls) {
  const std::string_view call = "|0 add@0 {\"a\": 1}";
  for (const std::string_view header :
       {"<|channel|>commentary to=functions.add <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.add<|message|>",
        "<|channel|>commentary to=functions.add<|constrain|>json<|message|>",
        " to=functions.add<|channel|>commentary json<|message|>", "<|channel|>analysis to=functions.add code<|message|>",
        "<|channel|>commentary to=add json<|message|>", "<|channel|>commentary functions.add<|message|>",
        " to=functions.add<|message|>"})
    for (const std::string_view end : {"", "<|call|>", "<|end|>"})
      expect_harmony(std::string(header) + "{\"a\": 1}" + std::string(end), call);
  // Functions that the request does not have are called too, and other recipients are not.
  expect_harmony("<|channel|>commentary to=functions.other<|message|>{}<|call|>", "|0 other@0 {}");
  expect_harmony("<|channel|>commentary to=python<|message|>{}<|call|>", "|{}");
  expect_harmony("<|channel|>analysis to=browser.search code<|message|>{}<|call|>", "|think {}");
  expect_harmony("<|channel|>commentary to=functions.<|message|>{}<|call|>", "|{}");
}

TEST(Harmony, an_answer_may_have_several_messages) {
  expect_harmony(
      "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
      "<|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
      "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}<|end|>"
      "<|start|>assistant to=functions.get_user_info<|channel|>commentary json<|message|> {\"x\": [1]} <|call|>"
      "<|start|>assistant<|channel|>final<|message|>Done.<|return|>",
      "|think One.|I look.|think \n\nTwo.|0 add@0 {}|1 get_user_info@1 {\"x\": [1]}|\n\nDone.");
}

TEST(Harmony, what_others_say_is_nothing) {
  expect_harmony(
      "<|channel|>final<|message|>a<|return|><|start|>user<|message|>b<|end|>"
      "<|start|>functions.add to=assistant<|channel|>commentary<|message|>c<|end|><|start|>system<|message|>d",
      "|a");
}

TEST(Harmony, markers_in_content_are_text) {
  expect_harmony("<|channel|>final<|message|>a<|message|>b<|channel|>c<|start|>d<|constrain|><|en<|end|>",
                 "|a<|message|>b<|channel|>c<|start|>d<|constrain|><|en");
}

TEST(Harmony, arguments_are_mended_or_content) {
  expect_harmony("<|channel|>commentary to=functions.add<|message|><|call|>", "|0 add@0 {}");
  expect_harmony("<|channel|>commentary to=functions.add<|message|>\n {\"a\": True,} }<|call|>", "|0 add@0 {\"a\": true}");
  expect_harmony("<|channel|>commentary to=functions.add<|message|>print(1)<|call|>", "|print(1)");
  Golden broken = harmony("<|channel|>commentary to=functions.add<|message|>{\"a\": oops}<|end|>", "|0 add@0 {\"a\": ~");
  expect_golden(broken);
  broken.is_whole = true;
  broken.shown = "|{\"a\": oops}";
  expect_golden(broken);
  broken.demands_calls = true;
  broken.shown = "";
  expect_golden(broken);
}

TEST(Harmony, an_answer_that_is_cut_off_keeps_what_it_says) {
  for (const bool is_whole : {false, true}) {
    const auto expect_cut = [&](std::string_view text, std::string_view shown) {
      Golden golden = harmony(text, shown);
      golden.is_whole = is_whole;
      golden.end = TextEnd::cut;
      expect_golden(golden);
    };
    expect_cut("<|channel|>analysis<|message|>So", "|think So");
    expect_cut("<|channel|>analysis<|message|>So<|en", "|think So<|en");
    expect_cut("<|channel|>analysis<|message|>So <", "|think So <");
    expect_cut("<|channel|>analysis<|message|>So<|end|>", "|think So");
    expect_cut("<|channel|>analysis<|message|>So<|end|><|start|>assis", "|think So");
    for (const std::string_view header :
         {"<", "<|chan", "<|channel|>ana", "assis", " to=func", "<|channel|>commentary to=functions.add"})
      expect_cut(header, "");
    expect_cut("<|channel|>commentary to=functions.add<|message|>{\"a\": \"b", "|0 add@0 {\"a\": \"b~");
    expect_cut("<|channel|>commentary to=functions.add<|message|>", "");
    expect_cut("<|channel|>commentary to=functions.add<|message|> ", "");
    expect_cut("Plain", "|Plain");
  }
}

TEST(Harmony, text_without_its_markers_is_not_lost) {
  expect_harmony("Plain text, 1 < 2.", "|Plain text, 1 < 2.");
  expect_harmony("assistant Plain <|end|>", "|Plain ");
  expect_harmony("<|channel|>analysis I think.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
                 "|think I think.|Yes.");
  expect_harmony("<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>Yes.", "|Yes.");
  expect_harmony("<|channel|>analysis<|message|>So<|end|>Yes.", "|think So|Yes.");
  expect_harmony("<|channel|>analysis<|message|>So<|end|><|start|>assistant Yes.<|return|>", "|think So|Yes.");
  expect_harmony("<|channel|>analysis<|message|>So<|end|><|start|>user I ask.", "|think So");
  const std::string text(1100, 'a');
  expect_harmony(text, "|" + text);
}

TEST(Harmony, wrong_headers_are_mended) {
  expect_harmony("<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b", "|think a|b");
  expect_harmony("<|channel|>analysis<|message|>a<|end|>x<|start|>assistant<|channel|>final<|message|>b", "|think a|b");
  expect_harmony("<|channel|><|message|>a", "|a");
  expect_harmony("<|channel|> analysis<|message|>a", "|a");
  expect_harmony("<|channel|>analysis one two three<|message|>a", "|think a");
  expect_harmony("<|channel|>commentary to=functions.add to=functions.f json<|message|>{}", "|0 f@0 {}");
  expect_harmony("<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{}", "|0 add@0 {}");
  expect_harmony("<|channel|>final<|message|>a<|end|><|start|><|message|>b<|end|><|start|>who<|message|>c", "|a\n\nb\n\nc");
}

TEST(Harmony, continues_what_the_prompt_has_opened) {
  const auto format = *MessageFormat::make("openai", "openai_gptoss", "");
  const auto parsed = [&](std::string_view prompt, std::string_view text) {
    const AnswerBegin begin = format.begin_after(prompt);
    return shown(testing::parsed(
        format.parser({.tools = tools(), .begins_in_reasoning = begin.in_reasoning, .begins_in_content = begin.in_content}),
        {text}));
  };
  const std::string_view rest = " more<|end|><|start|>assistant<|channel|>final<|message|>Yes.";
  EXPECT_EQ(parsed("<|start|>user<|message|>q<|end|><|start|>assistant<|channel|>analysis<|message|>I", rest),
            "|think  more|Yes.");
  EXPECT_EQ(parsed("<|start|>user<|message|>q<|end|><|start|>assistant<|channel|>final<|message|>I", rest), "| more\n\nYes.");
  EXPECT_EQ(parsed("<|start|>user<|message|>q<|end|><|start|>assistant", "<|channel|>final<|message|>Yes."), "|Yes.");
  EXPECT_EQ(parsed("no harmony", "<|channel|>final<|message|>Yes."), "|Yes.");
  const auto opened_after = [](std::size_t n_blanks) {
    return "<|start|>assistant" + std::string(n_blanks, ' ') + "<|channel|>analysis<|message|>";
  };
  EXPECT_TRUE(format.begin_after(opened_after(900)).in_reasoning);
  EXPECT_FALSE(format.begin_after(opened_after(1100)).in_reasoning) << "no header is that long";
}

TEST(Harmony, without_tools_or_reasoning_everything_is_content) {
  const std::string_view text =
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.add<|message|>{}<|call|>";
  expect_golden(
      {.tool_parser = "openai", .reasoning_parser = "", .begins_in_reasoning = false, .text = text, .shown = "|a|0 add@0 {}"});
  expect_golden({.tool_parser = "",
                 .reasoning_parser = "openai_gptoss",
                 .begins_in_reasoning = false,
                 .text = text,
                 .shown = "|think a|{}"});
}

TEST(Harmony, goes_with_no_other_format) {
  for (const auto& [tool_parser, reasoning_parser] : {std::pair("openai", "qwen3"), std::pair("hermes", "openai_gptoss")}) {
    const auto format = MessageFormat::make(tool_parser, reasoning_parser, "");
    ASSERT_FALSE(format);
    EXPECT_NE(format.error().message.find("read different formats"), std::string::npos) << format.error().message;
  }
  EXPECT_EQ(MessageFormat::make("gpt-oss", "", "")->tool_parser(), "openai");
  EXPECT_EQ(MessageFormat::make("openai", "", "")->stops().size(), 2u);
  EXPECT_TRUE(MessageFormat::make("hermes", "", "")->stops().empty());
}

}  // namespace
}  // namespace baton::parsers
