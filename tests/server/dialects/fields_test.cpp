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

TEST(DialectFields, have_tools_that_are_read_one_by_one) {
  std::vector<std::string> read;
  const ReadTool reader = [&](const json::Value& tool, const std::string& key, std::size_t index) -> Result<json::Value> {
    read.push_back(key + " " + std::to_string(index));
    return json::Value{{"name", tool["name"]}};
  };
  json::Value chat = json::Value::object();
  ASSERT_TRUE(read_dialect_tools(parsed(R"({"tools": [{"name": "a"}, {"name": "b"}]})"), reader, chat));
  EXPECT_EQ(json::dump(chat), R"({"tools":[{"type":"function","function":{"name":"a"}},)"
                              R"({"type":"function","function":{"name":"b"}}]})");
  EXPECT_EQ(read, (std::vector<std::string>{"tools[0] 0", "tools[1] 1"}));
  for (const char* none : {"{}", R"({"tools": null})", R"({"tools": []})"}) {
    json::Value without = json::Value::object();
    EXPECT_TRUE(read_dialect_tools(parsed(none), reader, without));
    EXPECT_EQ(json::dump(without), "{}") << none;
  }
  EXPECT_EQ(read_dialect_tools(parsed(R"({"tools": {}})"), reader, chat).error().param, "tools");
  EXPECT_EQ(read_dialect_tools(parsed(R"({"tools": [7]})"), reader, chat).error().param, "tools[0]");
}

TEST(DialectFields, are_unknown_if_nobody_reads_them) {
  EXPECT_EQ(unknown_dialect_fields(parsed(R"({"messages": [], "top_p": 1, "container": null, "prefix": "p", "other": 2})"),
                                   kKnown, kSame, kRefused),
            std::vector<std::string>{"other"});
}

TEST(DialectFields, give_errors_their_names) {
  EXPECT_EQ(in_words_of(kSame, {ErrorCode::invalid_request, "'stop' must be", "stop"}).message, "'stop_sequences' must be");
  EXPECT_EQ(in_words_of(kSame, {ErrorCode::invalid_request, "'top_p' must be", "top_p"}).param, "top_p");
  EXPECT_EQ(in_words_of(kSame, {ErrorCode::invalid_request, "'x' must be", "x"}).message, "'x' must be");
}

TEST(DialectFields, make_one_content_of_texts) {
  EXPECT_EQ(json::dump(chat_message("user", chat_content({"a"}))), R"({"role":"user","content":"a"})");
  EXPECT_EQ(json::dump(chat_content({"a", "b"})), R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])");
}

}  // namespace
}  // namespace baton
