/// Tests of the WordPiece model.
#include "text/models/word_models.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

json::Value model() {
  return {{"type", "WordPiece"},
          {"unk_token", "[UNK]"},
          {"max_input_chars_per_word", 6},
          {"vocab", {{"[UNK]", 0}, {"un", 1}, {"##able", 2}, {"##ab", 3}, {"é", 4}, {"##é", 5}, {"[SEP]", 6}, {"[", 7}}}};
}

Result<WordPiece> make(const json::Value& value) {
  return WordPiece::from_json(value, [](std::string_view text) { return text == "[SEP]" || text == "[UNK]"; });
}

Ids encode(std::string_view word) {
  Ids ids = {9};
  make(model())->encode(word, ids, UnlimitedWork().meter());
  return ids;
}

TEST(WordPiece, takes_the_longest_beginning_again_and_again) {
  EXPECT_EQ(encode("unable"), (Ids{9, 1, 2}));
  EXPECT_EQ(encode("unab"), (Ids{9, 1, 3}));
  EXPECT_EQ(encode("éééééé"), (Ids{9, 4, 5, 5, 5, 5, 5}));
}

TEST(WordPiece, a_word_that_cannot_be_cut_or_is_too_long_is_unknown) {
  EXPECT_EQ(encode("unx"), (Ids{9, 0}));
  EXPECT_EQ(encode("able"), (Ids{9, 0}));
  EXPECT_EQ(encode("ééééééé"), (Ids{9, 0}));
  EXPECT_EQ(encode("[SEP]"), (Ids{9, 0})) << "special tokens are not made from text";
}

TEST(WordPiece, damaged_models_are_errors_that_say_what) {
  json::Value value = model();
  value["unk_token"] = "?";
  EXPECT_EQ(make(value).error().message, "tokenizer.json: the WordPiece model: unk_token '?' is not in the vocabulary");
  value["vocab"] = 3;
  EXPECT_EQ(make(value).error().message, "tokenizer.json: the WordPiece model: 'vocab' must be an object");
  value["vocab"] = {{"a", -1}};
  EXPECT_EQ(make(value).error().code, ErrorCode::invalid_data);
}

}  // namespace
}  // namespace baton
