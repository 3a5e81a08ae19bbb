/// Tests of tekken.json.
#include "text/tokenizer/tekken.h"

#include <gtest/gtest.h>

#include "support/source_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

json::Value file() {
  json::Value root;
  root["config"] = {{"pattern", "\\S+|\\s+"}, {"default_vocab_size", 7}, {"default_num_special_tokens", 4}};
  // "a", "\xff ", "ab", and one that the model does not have
  root["vocab"] = {{{"rank", 0}, {"token_bytes", "YQ=="}},
                   {{"rank", 1}, {"token_bytes", "/yA="}},
                   {{"rank", 2}, {"token_bytes", "YWI="}},
                   {{"rank", 3}, {"token_bytes", "YWJj"}}};
  root["special_tokens"] = {{{"rank", 1}, {"token_str", "<s>"}}, {{"rank", 0}, {"token_str", "<unk>"}}};
  return root;
}

TEST(Tekken, reads_tokens_and_makes_room_for_special_ones) {
  const auto tekken = Tekken::from_json(file());
  ASSERT_TRUE(tekken) << tekken.error().message;
  EXPECT_EQ(tekken->pattern, "\\S+|\\s+");
  EXPECT_EQ(tekken->special_tokens, (std::vector<std::string>{"<unk>", "<s>", "<SPECIAL_2>", "<SPECIAL_3>"}));
  EXPECT_EQ(tekken->tokens, (std::vector<std::string>{"a", "ÿĠ", "ab"}));
}

TEST(Tekken, a_tokenizer_puts_the_special_tokens_first) {
  const auto tokenizer = Tokenizer::from_json(json::dump(file()), "");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("<s>aab", true), (std::vector<TokenId>{1, 4, 4}));
  EXPECT_EQ(tokenizer->encode("ab", true), (std::vector<TokenId>{6})) << "whole, although no merge makes it";
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
  EXPECT_EQ(tokenizer->token_bytes(5), "\xff ");
  EXPECT_EQ(tokenizer->n_vocab(), 7);
}

// Transformers 5.17 gives these ids.
TEST(Tekken, add_bos_token_and_add_eos_token_count) {
  json::Value root = file();
  root["special_tokens"].push_back({{"rank", 2}, {"token_str", "</s>"}});
  const auto encode = [&](const char* config) {
    const auto tokenizer = Tokenizer::from_json(json::dump(root), config);
    return tokenizer ? tokenizer->encode("a", true) : std::vector<TokenId>{-1};
  };
  EXPECT_EQ(encode("{}"), (std::vector<TokenId>{4}));
  EXPECT_EQ(encode(R"({"add_bos_token": true})"), (std::vector<TokenId>{1, 4}));
  EXPECT_EQ(encode(R"({"add_eos_token": true})"), (std::vector<TokenId>{4, 2}));
}

TEST(Tekken, is_found_in_a_folder_and_read_as_a_file) {
  const std::filesystem::path folder = test::source_folder() / "tests/goldens/tokenizers/tekken";
  Result<Tokenizer> both[] = {Tokenizer::load(folder), Tokenizer::load_file(folder / "tekken.json")};
  for (const auto& tokenizer : both) {
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->encode("[INST]<SPECIAL_7>", false), (std::vector<TokenId>{3, 7}));
  }
}

// Source: mistral-common, tekken.py.
TEST(Tekken, the_first_files_have_the_special_tokens_of_their_time) {
  json::Value root = file();
  root.erase("special_tokens");
  root["config"]["default_num_special_tokens"] = 22;
  root["config"].erase("default_vocab_size");
  root["config"]["version"] = "v3";
  const auto tekken = Tekken::from_json(root);
  ASSERT_TRUE(tekken) << tekken.error().message;
  ASSERT_EQ(tekken->special_tokens.size(), 22u);
  EXPECT_EQ(tekken->special_tokens[0], "<unk>");
  EXPECT_EQ(tekken->special_tokens[4], "[/INST]");
  EXPECT_EQ(tekken->special_tokens[10], "[IMG]");
  EXPECT_EQ(tekken->special_tokens[19], "[TOOL_CONTENT]");
  EXPECT_EQ(tekken->special_tokens[20], "<SPECIAL_20>");
  root["config"]["default_num_special_tokens"] = 19;
  EXPECT_EQ(Tekken::from_json(root).error().message, "tekken.json: 20 special_tokens, but default_num_special_tokens is 19");
  root["config"]["version"] = "v11";
  EXPECT_EQ(Tekken::from_json(root).error().message,
            "tekken.json: a file of version v11 without 'special_tokens' is not supported; v1 to v7 are");
  EXPECT_EQ(Tekken::from_json(root).error().code, ErrorCode::unsupported);
}

TEST(Tekken, damaged_files_are_errors_that_name_the_field) {
  const auto message_with = [](const char* pointer, const json::Value& value) {
    json::Value root = file();
    root[json::Value::json_pointer(pointer)] = value;
    const auto tekken = Tekken::from_json(root);
    return tekken ? std::string("none") : tekken.error().message;
  };
  EXPECT_EQ(message_with("/config", 3), "tekken.json: 'config' must be an object");
  EXPECT_EQ(message_with("/vocab", nullptr), "tekken.json: 'vocab' must be a list");
  EXPECT_EQ(message_with("/vocab/1/token_bytes", "a*=="), "tekken.json: vocab[1]: token_bytes 'a*==' is not base64");
  EXPECT_EQ(message_with("/vocab/1/token_bytes", "abc"), "tekken.json: vocab[1]: token_bytes 'abc' is not base64");
  EXPECT_EQ(message_with("/vocab/1/token_bytes", ""), "tekken.json: vocab[1]: token_bytes '' is not base64");
  EXPECT_EQ(message_with("/config/default_vocab_size", 3), "tekken.json: default_vocab_size is 3, with 4 special tokens");
  EXPECT_EQ(message_with("/config/default_num_special_tokens", 1),
            "tekken.json: 2 special_tokens, but default_num_special_tokens is 1");
  EXPECT_EQ(message_with("/special_tokens/0/rank", 0), "tekken.json: special_tokens: rank 0 ('<unk>') is not the next one");
  EXPECT_EQ(message_with("/special_tokens/0/rank", 5), "tekken.json: special_tokens: rank 5 ('<s>') is not the next one");
  EXPECT_NE(message_with("/config/pattern", 1), "none");
  json::Value twice = file();
  twice["vocab"][1]["token_bytes"] = "YQ==";
  EXPECT_EQ(Tokenizer::from_json(json::dump(twice), "").error().code, ErrorCode::invalid_data);
}

}  // namespace
}  // namespace baton
