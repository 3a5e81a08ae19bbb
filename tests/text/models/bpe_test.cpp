/// Tests of byte-pair encoding, compared with a naive model that repeatedly applies the best merge in the whole word.
#include "text/models/bpe.h"

#include <random>

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"

namespace baton {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

Result<Bpe> bpe_of(const json::Value& model) {
  return Bpe::from_json(model, [](std::string_view text) { return text == "<s>"; });
}

std::vector<std::string> tokens(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  std::vector<TokenId> ids;
  bpe.encode(word, scratch, ids, UnlimitedWork().meter());
  std::vector<TokenId> again;
  bpe.encode(word, scratch, again, UnlimitedWork().meter());
  EXPECT_EQ(ids, again) << "a word that was seen before";
  std::vector<std::string> texts;
  for (const TokenId id : ids) texts.emplace_back(bpe.vocabulary().text_of(id));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Bpe, merges_by_rank_and_leftmost_first) {
  const auto bpe = bpe_of(test::bpe_model({"a", "b", "c"}, {{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "bc"}}));
  ASSERT_TRUE(bpe);
  EXPECT_EQ(tokens(*bpe, "abc"), (Texts{"a", "bc"}));
  EXPECT_EQ(tokens(*bpe, "aaa"), (Texts{"aa", "a"}));
  EXPECT_EQ(tokens(*bpe, "aabc"), (Texts{"aabc"}));
  EXPECT_EQ(tokens(*bpe, ""), (Texts{}));
}

TEST(Bpe, reads_merges_as_strings_and_as_pairs) {
  json::Value model = test::bpe_model({"a", "b"}, {{"a", "b"}});
  model["merges"] = {"#version: 0.2", "a b"};
  const auto bpe = bpe_of(model);
  ASSERT_TRUE(bpe) << bpe.error().message;
  EXPECT_EQ(tokens(*bpe, "ab"), (Texts{"ab"}));
}

TEST(Bpe, equals_the_naive_model_on_random_words) {
  std::mt19937 random(11);
  Merges merges;
  std::vector<std::string> known = {"a", "b", "c", "é"};
  while (merges.size() < 60) {
    const std::string left = known[random() % known.size()];
    const std::string right = known[random() % known.size()];
    if (std::ranges::find(merges, std::pair(left, right)) != merges.end() || left.size() + right.size() > 12) continue;
    merges.emplace_back(left, right);
    if (std::ranges::find(known, left + right) == known.end()) known.push_back(left + right);
  }
  const auto bpe = bpe_of(test::bpe_model({"a", "b", "c", "é"}, merges));
  ASSERT_TRUE(bpe);
  for (int round = 0; round < 1000; ++round) {
    std::string word;
    Texts expected;
    for (std::size_t n = random() % 40; n > 0; --n) {
      expected.push_back(known[random() % 4]);
      word += expected.back();
    }
    while (true) {
      std::size_t best_rank = merges.size();
      std::size_t best_at = 0;
      for (std::size_t i = 0; i + 1 < expected.size(); ++i)
        for (std::size_t rank = 0; rank < best_rank; ++rank)
          if (merges[rank] == std::pair(expected[i], expected[i + 1])) {
            best_rank = rank;
            best_at = i;
          }
      if (best_rank == merges.size()) break;
      expected[best_at] += expected[best_at + 1];
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
    ASSERT_EQ(tokens(*bpe, word), expected) << word;
  }
}

TEST(Bpe, cuts_a_word_where_no_merge_reaches) {
  json::Value model = test::bpe_model({"_", "a", "b", "é", "<unk>"}, {{"a", "b"}, {"_", "ab"}, {"_", "_"}});
  model["unk_token"] = "<unk>";
  const auto bpe = bpe_of(model);
  ASSERT_TRUE(bpe);
  EXPECT_EQ(bpe->next_cut("_ab_ab", 0), 3u);
  EXPECT_EQ(bpe->next_cut("__a", 0), 3u);
  EXPECT_EQ(bpe->next_cut("éa", 0), 2u);
  EXPECT_EQ(bpe->next_cut("xxa", 0), 3u) << "unknown characters may be joined";
  EXPECT_EQ(bpe->next_cut("a", 0), 1u);
  EXPECT_EQ(bpe->next_cut("_ab_ab", 2), 3u);
  EXPECT_EQ(bpe->next_cut("_ab_ab", 3), 6u);
  EXPECT_EQ(bpe->next_cut("aéa", 2), 4u) << "from inside a character";
  EXPECT_EQ(bpe->next_cut("aéa", 9), 4u);
  model["ignore_merges"] = true;
  EXPECT_EQ(bpe_of(model)->next_cut("éa", 0), 3u);
}

TEST(Bpe, encodes_a_word_of_a_million_characters) {
  const auto bpe = bpe_of(test::bpe_model({"a"}, {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  ASSERT_TRUE(bpe);
  EXPECT_EQ(tokens(*bpe, std::string(1'000'000, 'a')).size(), 125'000u);
}

TEST(Bpe, unknown_characters_become_bytes_or_the_unknown_token_or_nothing) {
  json::Value model = test::bpe_model({"a", "<unk>"}, {});
  EXPECT_EQ(tokens(*bpe_of(model), "aéüa"), (Texts{"a", "a"}));
  model["unk_token"] = "<unk>";
  EXPECT_EQ(tokens(*bpe_of(model), "aéüa"), (Texts{"a", "<unk>", "<unk>", "a"}));
  model["fuse_unk"] = true;
  EXPECT_EQ(tokens(*bpe_of(model), "aéüa"), (Texts{"a", "<unk>", "a"}));
  model["byte_fallback"] = true;
  model["vocab"]["<0xC3>"] = 7;
  model["vocab"]["<0xA9>"] = 8;
  EXPECT_EQ(tokens(*bpe_of(model), "aüéa"), (Texts{"a", "<unk>", "<0xC3>", "<0xA9>", "a"}));
}

TEST(Bpe, ignore_merges_takes_whole_words_but_no_special_ones) {
  json::Value model = test::bpe_model({"a", "b", "<", "s", ">"}, {{"a", "b"}});
  model["vocab"]["ba"] = 10;
  model["vocab"]["<s>"] = 11;
  EXPECT_EQ(tokens(*bpe_of(model), "ba"), (Texts{"b", "a"}));
  model["ignore_merges"] = true;
  EXPECT_EQ(tokens(*bpe_of(model), "ba"), (Texts{"ba"}));
  EXPECT_EQ(tokens(*bpe_of(model), "<s>"), (Texts{"<", "s", ">"}));
}

TEST(Bpe, merges_never_make_special_tokens) {
  const auto bpe = bpe_of(test::bpe_model({"<", "s", ">"}, {{"<", "s"}, {"<s", ">"}}));
  ASSERT_TRUE(bpe);
  EXPECT_EQ(tokens(*bpe, "<s>"), (Texts{"<s", ">"}));
}

TEST(Bpe, marks_the_end_of_a_word_and_what_continues_one) {
  json::Value model = test::bpe_model({"a", "@a", "@a</w>", "a</w>"}, {});
  model["end_of_word_suffix"] = "</w>";
  model["continuing_subword_prefix"] = "@";
  model["vocab"]["aa</w>"] = 4;
  model["merges"] = json::Value::array({"@a @a</w>"});
  model["vocab"]["@aa</w>"] = 5;
  const auto bpe = bpe_of(model);
  ASSERT_TRUE(bpe) << bpe.error().message;
  EXPECT_EQ(tokens(*bpe, "a"), (Texts{"a</w>"}));
  EXPECT_EQ(tokens(*bpe, "aa"), (Texts{"a", "@a</w>"}));
  EXPECT_EQ(tokens(*bpe, "aaaa"), (Texts{"a", "@a", "@aa</w>"}));
}

TEST(Bpe, of_ranks_merges_whatever_is_a_token_the_smallest_first) {
  const std::vector<std::string> ranks = {"a", "b", "Ġ", "ab", "ba", "Ġa", "abba"};
  const auto bpe = Bpe::from_ranks(ranks, 10);
  ASSERT_TRUE(bpe);
  EXPECT_EQ(tokens(*bpe, "ab"), (Texts{"ab"}));
  EXPECT_EQ(tokens(*bpe, "abba"), (Texts{"abba"}));
  EXPECT_EQ(tokens(*bpe, "Ġabba"), (Texts{"Ġ", "abba"}));
  EXPECT_EQ(tokens(*bpe, "Ġaa"), (Texts{"Ġa", "a"}));
  EXPECT_EQ(tokens(*bpe, "bab"), (Texts{"b", "ab"}));
  EXPECT_EQ(bpe->vocabulary().id_of("Ġa"), 15);
  const std::vector<std::string> twice = {"a", "a"};
  EXPECT_EQ(Bpe::from_ranks(twice, 0).error().code, ErrorCode::invalid_data);
}

TEST(Bpe, damaged_models_are_errors_that_say_what) {
  const json::Value good = test::bpe_model({"a", "b"}, {{"a", "b"}});
  const auto message_with = [&](const char* key, const json::Value& value) {
    json::Value model = good;
    model[key] = value;
    const auto bpe = bpe_of(model);
    return bpe ? std::string("none") : bpe.error().message;
  };
  EXPECT_EQ(message_with("merges", {"a b c"}),
            "tokenizer.json: the BPE model: merge 0 'a b c' is not two tokens with a space between them");
  EXPECT_EQ(message_with("merges", {"a x"}),
            "tokenizer.json: the BPE model: merge 0 ('a' and 'x') or what it makes is not in the vocabulary");
  EXPECT_NE(message_with("merges", {3}), "none");
  EXPECT_NE(message_with("merges", nullptr), "none");
  EXPECT_NE(message_with("vocab", nullptr), "none");
  EXPECT_NE(message_with("vocab", {{"a", -1}}), "none");
  EXPECT_NE(message_with("vocab", {{"a", 1e18}}), "none");
  EXPECT_EQ(message_with("dropout", 0.1), "tokenizer.json: the BPE option dropout is not supported");
  EXPECT_EQ(message_with("continuing_subword_prefix", "##"),
            "tokenizer.json: the BPE model: merge 0: 'b' is shorter than the prefix");
}

}  // namespace
}  // namespace baton
