/// Reading and registering prefixes (server/prefixes.h).
#include "server/prefixes.h"

#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

std::filesystem::path written(const std::string& name, std::string_view text) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_prefixes_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name) << text;
  return folder / name;
}

TEST(Prefixes, a_text_file_is_one_system_message) {
  const auto prefix = read_prefix("shop", written("shop.txt", "Mugs: $5\n"));
  ASSERT_TRUE(prefix);
  EXPECT_EQ(prefix->name, "shop");
  EXPECT_EQ(json::dump(prefix->messages), R"([{"role":"system","content":"Mugs: $5\n"}])");
}

TEST(Prefixes, a_json_file_is_a_list_of_messages) {
  const auto prefix =
      read_prefix("shop", written("shop.json", R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])"));
  ASSERT_TRUE(prefix);
  EXPECT_EQ(prefix->messages.size(), 2u);
  EXPECT_EQ(prefix_text(prefix->messages), "a\nb");
}

TEST(Prefixes, says_what_is_wrong_with_a_file_or_a_name) {
  EXPECT_EQ(read_prefix("shop", "/nowhere/shop.txt").error().code, ErrorCode::not_found);
  EXPECT_EQ(read_prefix("shop", written("empty.txt", "")).error().code, ErrorCode::invalid_data);
  EXPECT_EQ(read_prefix("shop", written("bad.json", "{")).error().code, ErrorCode::invalid_data);
  const auto no_role = read_prefix("shop", written("role.json", R"([{"content": "a"}])"));
  ASSERT_FALSE(no_role);
  EXPECT_TRUE(no_role.error().message.ends_with("role.json: 'messages[0].role' is missing")) << no_role.error().message;
  for (const char* name : {"", "a b", "a:b", "a/b", "\xC3\xA9"})
    EXPECT_EQ(read_prefix(name, written("shop.txt", "x")).error().code, ErrorCode::invalid_request) << name;
}

TEST(Prefixes, have_the_tokens_that_all_conversations_with_them_share) {
  const ServedModel model = byte_model();
  const auto tokens = prefix_tokens(model, parsed(R"([{"role": "system", "content": "Mugs."}])"));
  ASSERT_TRUE(tokens);
  EXPECT_EQ(model.tokenizer.decode(*tokens, false), "[system]Mugs.[user]");
  const auto raw = prefix_tokens(byte_model(/*has_template=*/false), parsed(R"([{"role": "system", "content": "Mugs."}])"));
  ASSERT_TRUE(raw);
  EXPECT_EQ(model.tokenizer.decode(*raw, false), "Mugs.");
}

TEST(Prefixes, are_filled_once_and_found_by_name) {
  const ServedModel model = byte_model();
  ModelConfig config = testing::tiny_config();
  config.n_vocab = kByteModelVocab;
  const auto engine = testing::make_tiny_engine({}, 256, config);
  Prefixes prefixes;
  const json::Value messages = parsed(R"([{"role": "system", "content": "Sells mugs for five dollars each."}])");
  const auto info = prefixes.add(model, *engine, {"shop", messages});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->n_tokens, 47);
  EXPECT_EQ(info->n_pinned_tokens, 32);
  EXPECT_EQ(prefixes.find("shop")->info.n_tokens, 47);
  EXPECT_EQ(prefixes.find("bank"), nullptr);
  const auto again = prefixes.add(model, *engine, {"shop", messages});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, "prefix shop is given twice");
  const auto robot = prefixes.add(model, *engine, {"robot", parsed(R"([{"role": "robot", "content": "a"}])")});
  ASSERT_FALSE(robot);
  EXPECT_TRUE(robot.error().message.starts_with("prefix robot: ")) << robot.error().message;
}

}  // namespace
}  // namespace baton
