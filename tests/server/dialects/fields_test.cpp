/// Known, refused and copied fields of a dialect (server/dialects/fields.h).
#include "server/dialects/fields.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

constexpr RefusedField kRefused[] = {{"background", "false"}, {"container", ""}};
constexpr SameField kSame[] = {{"stop_sequences", "stop"}, {"top_p", "top_p"}};
constexpr std::string_view kKnown[] = {"messages"};

TEST(DialectFields, are_refused_unless_neutral) {
  EXPECT_TRUE(check_dialect_fields(parsed(R"({"background": false, "container": null})"), kRefused));
  const auto refused = check_dialect_fields(parsed(R"({"background": true})"), kRefused);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "background");
  EXPECT_EQ(refused.error().message, "'background' is not supported by this server; the value accepted is false");
  EXPECT_EQ(check_dialect_fields(parsed(R"({"container": "x"})"), kRefused).error().message,
            "'container' is not supported by this server; the value accepted is null");
  json::Value many = json::Value::object();
  for (int i = 0; i <= 1000; ++i) many[std::to_string(i)] = 0;
  EXPECT_FALSE(check_dialect_fields(many, kRefused));
}

TEST(DialectFields, are_copied_under_the_names_of_a_chat_completion) {
  json::Value chat = json::Value::object();
  copy_same_fields(parsed(R"({"stop_sequences": ["a"], "top_p": null, "seed": 1, "messages": [], "other": 2})"), kSame, chat);
  EXPECT_EQ(json::dump(chat), R"({"stop":["a"],"seed":1})");
}

TEST(DialectFields, are_unknown_if_no_dialect_reads_them) {
  EXPECT_EQ(unknown_dialect_fields(parsed(R"({"messages": [], "top_p": 1, "container": null, "prefix": "p", "other": 2})"),
                                   kKnown, kSame, kRefused),
            std::vector<std::string>{"other"});
}

TEST(DialectFields, give_errors_their_names) {
  const std::string keys[] = {"tools[0]", "tools[2].tools[1]"};
  const FieldNames names{
      .same = kSame, .messages = "input", .parameters = "input_schema", .format = "text.format", .tools = keys};
  constexpr std::string_view kCases[][2] = {{"stop", "stop_sequences"},
                                            {"stop[1]", "stop_sequences[1]"},
                                            {"stop_token_ids", "stop_token_ids"},
                                            {"response_format", "text.format"},
                                            {"response_format.type", "text.format.type"},
                                            {"response_format.json_schema.schema", "text.format.schema"},
                                            {"top_p", "top_p"},
                                            {"x", "x"},
                                            {"messages", "input"},
                                            {"tools", "tools"},
                                            {"tools[1].function.name", "tools[2].tools[1].name"},
                                            {"tools[0].function.parameters", "tools[0].input_schema"},
                                            {"tools[0].custom.format.type", "tools[0].format.type"},
                                            {"tools[7].function.name", "tools[7].name"},
                                            {"tool_choice.function.name", "tool_choice.name"}};
  for (const auto& [chat_name, name] : kCases) {
    const Error error =
        in_words_of(names, {ErrorCode::invalid_request, "'" + std::string(chat_name) + "' must be", std::string(chat_name)});
    EXPECT_EQ(error.param, name);
    EXPECT_EQ(error.message, "'" + std::string(name) + "' must be");
  }
}

TEST(DialectFields, make_one_content_of_texts) {
  EXPECT_EQ(json::dump(chat_message("user", chat_content({"a"}))), R"({"role":"user","content":"a"})");
  EXPECT_EQ(json::dump(chat_content({"a", "b"})), R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])");
}

}  // namespace
}  // namespace baton
