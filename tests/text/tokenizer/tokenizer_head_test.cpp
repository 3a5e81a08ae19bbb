/// Texts whose beginning was tokenised before (Tokenizer::encode_head, encode_behind).
#include <random>

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

json::Value added(TokenId id, std::string_view content) {
  json::Value token;
  token["id"] = id;
  token["content"] = std::string(content);
  token["special"] = true;
  token["normalized"] = false;
  return token;
}

Tokenizer made(const json::Value& root) {
  auto tokenizer = Tokenizer::from_json(json::dump(root), "{}");
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  return std::move(*tokenizer);
}

/// Beside <|end|> and "tool": one that another begins with, one that takes spaces along, one that must be a word.
json::Value entangled() {
  json::Value root = test::byte_level_tokenizer();
  root["added_tokens"].push_back(added(262, "<a>"));
  root["added_tokens"].push_back(added(263, "<a><b>"));
  root["added_tokens"].push_back(added(264, "<r>"));
  root["added_tokens"].back()["rstrip"] = true;
  root["added_tokens"].push_back(added(265, "<l>"));
  root["added_tokens"].back()["lstrip"] = true;
  root["added_tokens"].push_back(added(266, "word"));
  root["added_tokens"].back()["single_word"] = true;
  root["added_tokens"].push_back(added(267, "\n"));
  return root;
}

TEST(TokenizerHead, ends_with_the_last_token_that_nothing_after_it_changes) {
  const Tokenizer tokenizer = made(entangled());
  const auto head = [&](std::string_view text) { return tokenizer.encode_head(text).text; };
  EXPECT_EQ(head("the mug<|end|>the"), "the mug<|end|>");
  EXPECT_EQ(head("the mug<|end|>the<a>"), "the mug<|end|>") << "<a> may become <a><b>";
  EXPECT_EQ(head("a<a><b>c"), "a<a><b>");
  EXPECT_EQ(head("<|end|><r>"), "<|end|>") << "spaces after it are its own";
  EXPECT_EQ(head("<l>, word"), "<l>");
  EXPECT_EQ(head("a<|end|>\n"), "a<|end|>");
  EXPECT_EQ(head("the mug"), "");
  EXPECT_EQ(head("\xFF<|end|>"), "") << "what is not UTF-8 is rewritten";
  EXPECT_EQ(tokenizer.encode_head("the<|end|>").ids, tokenizer.encode("the<|end|>", false));
}

TEST(TokenizerHead, gives_the_ids_of_the_whole_text_whatever_follows) {
  const Tokenizer tokenizers[] = {made(entangled()), made(test::byte_fallback_tokenizer())};
  const std::vector<std::string> pieces = {"<|end|>", "<a>",  "<b>", "<a><b>", "<r>", "<l>", "word", "tool", " ", "\n",  " the",
                                           "the",     "caca", "é",   "\xC3",   ">",   "<",   "<s>",  "</s>", "|", "\xA9"};
  std::mt19937 random(7);
  const auto text_of = [&](std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += pieces[random() % pieces.size()];
    return text;
  };
  int n_heads = 0;
  for (const Tokenizer& tokenizer : tokenizers) {
    for (int i = 0; i < 20'000; ++i) {
      const EncodedHead head = tokenizer.encode_head(text_of(random() % 7));
      if (!head.text.empty()) ++n_heads;
      const std::string text = head.text + text_of(random() % 5);
      for (const bool with_ends : {false, true})
        ASSERT_EQ(tokenizer.encode_behind(head, text, with_ends), tokenizer.encode(text, with_ends)) << text;
      const std::string other = text_of(3);
      ASSERT_EQ(tokenizer.encode_behind(head, other, false), tokenizer.encode(other, false))
          << "it begins otherwise: " << other;
    }
  }
  EXPECT_GT(n_heads, 2000);
}

}  // namespace
}  // namespace baton
