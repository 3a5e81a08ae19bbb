/// Tests of the WordLevel model.
#include "text/models/word_models.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

std::vector<TokenId> tokens(const WordLevel& model, std::string_view word) {
  std::vector<TokenId> out;
  model.encode(word, out);
  return out;
}

const auto no_special = [](std::string_view) { return false; };

TEST(WordLevel, gives_each_word_its_token_or_the_unknown_one) {
  const auto model = WordLevel::from_json({{"unk_token", "?"}, {"vocab", {{"?", 0}, {"the", 1}, {"<s>", 2}}}},
                                          [](std::string_view text) { return text == "<s>"; });
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(tokens(*model, "the"), (std::vector<TokenId>{1}));
  EXPECT_EQ(tokens(*model, "them"), (std::vector<TokenId>{0}));
  EXPECT_EQ(tokens(*model, "<s>"), (std::vector<TokenId>{0})) << "special tokens are not made from text";
  EXPECT_EQ(model->vocabulary().text_of(1), "the");
}

TEST(WordLevel, damaged_models_are_errors) {
  for (const json::Value& model : {json::Value{{"vocab", 3}}, json::Value{{"vocab", {{"a", 0}}}},
                                   json::Value{{"vocab", {{"<unk>", -1}}}}, json::Value{{"unk_token", 3}}}) {
    const auto result = WordLevel::from_json(model, no_special);
    ASSERT_FALSE(result) << model.dump();
    EXPECT_EQ(result.error().code, ErrorCode::invalid_data);
  }
}

}  // namespace
}  // namespace baton
