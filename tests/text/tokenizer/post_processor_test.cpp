/// Tests of post-processors.
#include "text/tokenizer/post_processor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

json::Value special(const char* name) { return {{"SpecialToken", {{"id", name}, {"type_id", 0}}}}; }

json::Value around(const json::Value& before, const json::Value& after) {
  json::Value single = before;
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const json::Value& item : after) single.push_back(item);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"special_tokens", {{"<s>", {{"ids", {1}}}}, {"</s>", {{"ids", {2, 3}}}}}}};
}

TEST(PostProcessor, a_template_puts_tokens_on_both_sides) {
  const auto processor =
      PostProcessor::from_json(around(json::Value::array({special("<s>")}), json::Value::array({special("</s>")})));
  ASSERT_TRUE(processor);
  EXPECT_EQ(processor->before, (std::vector<TokenId>{1}));
  EXPECT_EQ(processor->after, (std::vector<TokenId>{2, 3}));
}

TEST(PostProcessor, a_sequence_wraps_from_the_inside) {
  const json::Value inner = around(json::Value::array({special("<s>")}), json::Value::array());
  const json::Value outer = around(json::Value::array({special("</s>")}), json::Value::array());
  const auto processor =
      PostProcessor::from_json({{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, inner, outer}}});
  ASSERT_TRUE(processor);
  EXPECT_EQ(processor->before, (std::vector<TokenId>{2, 3, 1}));
}

TEST(PostProcessor, bert_and_roberta_say_what_stands_at_both_ends) {
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) {
    const auto processor = PostProcessor::from_json({{"type", type}, {"cls", {"[CLS]", 2}}, {"sep", {"[SEP]", 3}}});
    ASSERT_TRUE(processor) << processor.error().message;
    EXPECT_EQ(processor->before, (std::vector<TokenId>{2}));
    EXPECT_EQ(processor->after, (std::vector<TokenId>{3}));
    EXPECT_EQ(PostProcessor::from_json({{"type", type}, {"cls", {"[CLS]", 2}}, {"sep", {"[SEP]", -3}}}).error().message,
              fmt::format("tokenizer.json: {}: 'sep' must be a token and its id", type));
  }
}

TEST(PostProcessor, refuses_templates_that_lose_the_text_and_unknown_components) {
  json::Value lost = around(json::Value::array({special("<s>")}), json::Value::array());
  lost["single"].erase(1);
  EXPECT_FALSE(PostProcessor::from_json(lost));
  EXPECT_FALSE(PostProcessor::from_json(around(json::Value::array({special("<who>")}), json::Value::array())));
  EXPECT_EQ(PostProcessor::from_json({{"type", "Unknown"}}).error().message,
            "tokenizer.json: the post_processor Unknown is not supported");
  EXPECT_TRUE(PostProcessor::from_json(nullptr)->before.empty());
}

}  // namespace
}  // namespace baton
