/// Tests of what tokenizer classes build themselves, against goldens of Transformers' AutoTokenizer.
#include "text/tokenizer/tokenizer_class.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/source_folder.h"
#include "support/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

TEST(TokenizerClass, equals_the_goldens_of_auto_tokenizer) {
  int n_folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() / "tests/goldens/auto_tokenizers")) {
    SCOPED_TRACE(entry.path().filename().string());
    const auto tokenizer = Tokenizer::load(entry.path());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto cases = json::parse_file(entry.path() / "cases.json");
    ASSERT_TRUE(cases);
    EXPECT_GT(cases->size(), 80u);
    for (const json::Value& one : *cases) {
      const auto text = one.at("text").get<std::string>();
      const Ids with_ends = one.at("ids_with_ends").get<Ids>();
      EXPECT_EQ(tokenizer->encode(text, false), one.at("ids").get<Ids>()) << text;
      EXPECT_EQ(tokenizer->encode(text, true), with_ends) << text;
      EXPECT_EQ(tokenizer->encode_behind(tokenizer->encode_head(text), text, true), with_ends) << text;
      EXPECT_EQ(tokenizer->decode(with_ends, false), one.at("decoded").get<std::string>());
    }
    ++n_folders;
  }
  EXPECT_EQ(n_folders, 9);
}

TEST(TokenizerClass, roles_have_the_names_that_the_class_gives) {
  const std::string root = json::dump(test::byte_fallback_tokenizer());
  const auto named = Tokenizer::from_json(root, R"({"tokenizer_class": "LlamaTokenizer", "bos_token": null})");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->bos(), std::nullopt);
  EXPECT_EQ(named->eos(), 2);
  EXPECT_EQ(named->role_tokens().at("unk_token"), "<unk>");
}

// The distilled Llamas of DeepSeek name the class LlamaTokenizer beside a byte-level tokenizer.json.
TEST(TokenizerClass, a_tokenizer_json_that_the_class_is_not_made_for_stays_as_it_is) {
  const std::string root = json::dump(test::byte_level_tokenizer());
  const auto plain = Tokenizer::from_json(root, "");
  const auto named = Tokenizer::from_json(root, R"({"tokenizer_class": "LlamaTokenizerFast"})");
  ASSERT_TRUE(plain && named);
  EXPECT_EQ(named->encode("the theatre é", true), plain->encode("the theatre é", true));
  json::Value unigram = {{"model", {{"type", "Unigram"}, {"byte_fallback", true}}}};
  const json::Value before = unigram;
  TokenizerConfig config;
  config.tokenizer_class = "LlamaTokenizer";
  rebuild_for_class(unigram, config);
  EXPECT_EQ(unigram, before);
}

TEST(TokenizerClass, a_vocabulary_without_a_class_for_it_is_refused_by_name) {
  TokenizerConfig config;
  const auto none = root_for_class(json::Value::object(), "", nullptr, config);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unsupported);
  EXPECT_NE(none.error().message.find("no tokenizer class is named"), std::string::npos) << none.error().message;
  config.tokenizer_class = "HerbertTokenizer";
  EXPECT_NE(root_for_class(json::Value::object(), "", nullptr, config).error().message.find("HerbertTokenizer"),
            std::string::npos);
}

TEST(TokenizerClass, damaged_vocabularies_are_errors_that_name_the_file) {
  const auto error_of = [](const json::Value& vocab, std::string_view merges, const json::Value& added) {
    TokenizerConfig config;
    config.tokenizer_class = "GPT2Tokenizer";
    const auto root = root_for_class(vocab, merges, added, config);
    return root ? std::string() : root.error().message;
  };
  const json::Value vocab = {{"a", 0}, {"b", 1}, {"ab", 2}};
  EXPECT_EQ(error_of(vocab, "#version: 0.2\r\na b\r\n\n", nullptr), "");
  EXPECT_TRUE(error_of(json::Value::array(), "", nullptr).starts_with("vocab.json: "));
  EXPECT_EQ(error_of(vocab, "a b\na\n", nullptr), "merges.txt: line 2 is not two tokens with a space between");
  EXPECT_TRUE(error_of(vocab, "a b c", nullptr).starts_with("merges.txt: line 1"));
  EXPECT_TRUE(error_of(vocab, "", {{"x", -1}}).starts_with("added_tokens.json: "));
}

TEST(TokenizerClass, a_missing_end_token_comes_after_the_vocabulary) {
  TokenizerConfig config;
  config.tokenizer_class = "Qwen2Tokenizer";
  const auto root = root_for_class({{"a", 0}, {"b", 1}}, "", {{"<|x|>", 2}}, config);
  ASSERT_TRUE(root);
  ASSERT_EQ(root->at("added_tokens").size(), 1u);
  EXPECT_EQ(root->at("added_tokens")[0].at("id"), 3);
  const auto known = root_for_class({{"<|endoftext|>", 0}}, "", nullptr, config);
  ASSERT_TRUE(known);
  EXPECT_TRUE(known->at("added_tokens").empty());
}

}  // namespace
}  // namespace baton
