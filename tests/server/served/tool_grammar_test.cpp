/// Which grammar the tools of a request demand, and what is refused.
#include "server/served/grammars.h"

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "io/json.h"
#include "server/byte_model.h"

namespace baton {
namespace {

constexpr std::string_view kTools = R"("tools": [
    {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}}},
    {"type": "function", "function": {"name": "b", "strict": STRICT}}])";

/// A chat request with two tools, the second of which may be strict.
ChatRequest chat_with(std::string_view fields, bool is_strict = false) {
  std::string tools(kTools);
  tools.replace(tools.find("STRICT"), 6, is_strict ? "true" : "false");
  const std::string text = R"({"messages": [{"role": "user", "content": "q"}], )" + tools + std::string(fields) + "}";
  auto chat = parse_chat_request(json::parse(text, "the body").value(), {}, {.n_vocab = 100});
  EXPECT_TRUE(chat) << chat.error().message;
  return std::move(*chat);
}

ServedModel served(parsers::MessageFormat format) {
  ServedModel model = byte_model();
  model.format = std::move(format);
  model.look_at_templates();
  return model;
}
ServedModel hermes() { return served(parsers::MessageFormat::make("hermes", "", "").value()); }

TEST(ToolGrammar, free_answers_stay_free) {
  for (const char* fields : {"", R"(, "tool_choice": "auto")", R"(, "tool_choice": "none")"}) {
    ChatRequest chat = chat_with(fields);
    ASSERT_TRUE(demand_calls(hermes(), chat));
    EXPECT_FALSE(chat.generation.grammar) << fields;
  }
}

TEST(ToolGrammar, demands_of_calls_become_grammars) {
  for (const char* fields :
       {R"(, "tool_choice": "required")", R"(, "tool_choice": {"type": "function", "function": {"name": "a"}})"}) {
    ChatRequest chat = chat_with(fields);
    ASSERT_TRUE(demand_calls(hermes(), chat));
    ASSERT_TRUE(chat.generation.grammar) << fields;
    EXPECT_NE(chat.generation.grammar->source.text.find("tool_call"), std::string::npos) << fields;
  }
  ChatRequest strict = chat_with("", /*is_strict=*/true);
  ASSERT_TRUE(demand_calls(hermes(), strict));
  EXPECT_TRUE(strict.generation.grammar);
}

TEST(ToolGrammar, schemas_keep_the_names_of_their_fields_and_tools_for_errors) {
  ChatRequest chat = chat_with(R"(, "tool_choice": "required")");
  ASSERT_TRUE(demand_calls(hermes(), chat));
  const std::string& text = chat.generation.grammar->source.text;
  EXPECT_NE(text.find(R"("field":"tools[0].function.parameters","name":"a")"), std::string::npos) << text;
  EXPECT_EQ(text.find("tools[1]"), std::string::npos) << "the second tool has no schema";
  const std::string_view with_custom = R"({"messages": [{"role": "user", "content": "q"}], "tools": [{"type": "custom",
      "custom": {"name": "c", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-9]+"}}}}]})";
  auto parsed_custom = parse_chat_request(json::parse(with_custom, "the body").value(), {}, {.n_vocab = 100});
  ASSERT_TRUE(parsed_custom) << parsed_custom.error().message;
  ChatRequest& custom = *parsed_custom;
  ASSERT_TRUE(demand_calls(hermes(), custom));
  EXPECT_NE(custom.generation.grammar->source.text.find(R"("field":"tools[0].custom.format","name":"c")"), std::string::npos);
}

TEST(ToolGrammar, allowed_tools_keep_out_the_others) {
  ChatRequest chat = chat_with(R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto",
      "tools": [{"type": "function", "function": {"name": "a"}}]}})");
  ASSERT_TRUE(demand_calls(hermes(), chat));
  ASSERT_TRUE(chat.generation.grammar);
  EXPECT_NE(chat.generation.grammar->source.text.find(R"(\"a\")"), std::string::npos);
  EXPECT_EQ(chat.generation.grammar->source.text.find(R"(\"b\")"), std::string::npos);
}

TEST(ToolGrammar, a_demanded_call_takes_the_place_of_a_format_of_content) {
  ChatRequest chat = chat_with(R"(, "tool_choice": "required", "response_format": {"type": "json_object"})");
  ASSERT_TRUE(demand_calls(hermes(), chat));
  EXPECT_EQ(chat.generation.grammar->field, "tools");
}

TEST(ToolGrammar, a_format_of_content_beside_free_calls_leaves_both) {
  ChatRequest chat = chat_with(R"(, "response_format": {"type": "json_object"})");
  ASSERT_TRUE(demand_calls(hermes(), chat));
  ASSERT_TRUE(chat.generation.grammar);
  EXPECT_EQ(chat.generation.grammar->field, "tools");
  EXPECT_EQ(chat.generation.grammar->source.kind, grammar::GrammarKind::structural_tag);
  ASSERT_NE(chat.generation.grammar->content, nullptr);
  EXPECT_EQ(chat.generation.grammar->content->field, "response_format");
  ChatRequest none = chat_with(R"(, "tool_choice": "none", "response_format": {"type": "json_object"})");
  ASSERT_TRUE(demand_calls(hermes(), none));
  EXPECT_EQ(none.generation.grammar->source.kind, grammar::GrammarKind::json_object);
}

TEST(ToolGrammar, content_that_is_no_json_names_its_field) {
  ChatRequest chat = chat_with(R"(, "structured_outputs": {"structural_tag": "{"})");
  const auto refused = demand_calls(hermes(), chat);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(refused.error().param, "structured_outputs.structural_tag");
}

TEST(ToolGrammar, markers_that_are_special_tokens_are_demanded_as_such) {
  json::Value root = test::byte_level_tokenizer();
  root["added_tokens"].push_back({{"id", 262}, {"content", "[TOOL_CALLS]"}, {"special", true}, {"normalized", false}});
  ServedModel model = byte_model();
  model.tokenizer = *Tokenizer::from_json(json::dump(root), "{}");
  model.format = *parsers::MessageFormat::make("mistral", "", "");
  model.look_at_templates();
  EXPECT_EQ(model.marker_texts, std::vector<std::string>{"[TOOL_CALLS]"});
  ChatRequest chat = chat_with(R"(, "tool_choice": "required")");
  ASSERT_TRUE(demand_calls(model, chat));
  EXPECT_EQ(parsed(chat.generation.grammar->source.text)["tokens"], parsed(R"(["[TOOL_CALLS]"])"));
}

TEST(ToolGrammar, without_a_format_a_demand_is_refused) {
  ChatRequest chat = chat_with(R"(, "tool_choice": "required")");
  const auto refused = demand_calls(served({}), chat);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(refused.error().param, "tool_choice");
}

}  // namespace
}  // namespace baton
