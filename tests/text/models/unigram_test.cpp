/// Tests of the Unigram model, against a search of all cuts.
#include "text/models/unigram.h"

#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

Result<Unigram> unigram_of(const json::Value& model) {
  return Unigram::from_json(model, [](std::string_view text) { return text == "<s>"; });
}

Ids encode(const Unigram& unigram, std::string_view word) {
  Unigram::Scratch scratch;
  Ids ids;
  unigram.encode(word, scratch, ids, UnlimitedWork().meter());
  return ids;
}

json::Value model_of(const std::vector<std::pair<std::string, double>>& pieces) {
  json::Value vocab = json::Value::array();
  for (const auto& [piece, score] : pieces) vocab.push_back(json::Value::array({piece, score}));
  return {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
}

TEST(Unigram, takes_the_pieces_whose_scores_have_the_largest_sum) {
  const auto unigram =
      unigram_of(model_of({{"<unk>", 0}, {"a", -1.0}, {"b", -1.0}, {"ab", -1.9}, {"abb", -4.0}, {"bb", -0.5}}));
  ASSERT_TRUE(unigram) << unigram.error().message;
  EXPECT_EQ(encode(*unigram, "ab"), (Ids{3}));
  EXPECT_EQ(encode(*unigram, "abb"), (Ids{1, 5}));
  EXPECT_EQ(encode(*unigram, ""), Ids{});
}

TEST(Unigram, unknown_runs_become_one_token_their_bytes_or_nothing) {
  json::Value model = model_of({{"<unk>", 0}, {"a", -1.0}, {"<0xC3>", -2}, {"<0xA9>", -2}, {"<0xBC>", -2}});
  EXPECT_EQ(encode(*unigram_of(model), "aéüa"), (Ids{1, 0, 1}));
  model["byte_fallback"] = true;
  EXPECT_EQ(encode(*unigram_of(model), "aéüa"), (Ids{1, 2, 3, 2, 4, 1}));
  EXPECT_EQ(encode(*unigram_of(model), "éß"), (Ids{0})) << "one byte of the run is not a token";
  model["byte_fallback"] = false;
  model["unk_id"] = nullptr;
  EXPECT_EQ(encode(*unigram_of(model), "aéa"), (Ids{1, 1}));
}

TEST(Unigram, never_makes_special_tokens_from_text) {
  const auto unigram = unigram_of(model_of({{"<unk>", 0}, {"<s>", 0}, {"<", -1}, {"s", -1}, {">", -1}}));
  EXPECT_EQ(encode(*unigram, "<s>"), (Ids{2, 3, 4}));
  EXPECT_EQ(encode(*unigram_of(model_of({{"<unk>", 0}, {"<s>", 0}})), "<s>"), (Ids{0}));
}

TEST(Unigram, equals_a_search_of_all_cuts) {
  std::mt19937 random(9);
  const std::vector<std::string> letters = {"a", "b", "é"};
  for (int round = 0; round < 40; ++round) {
    std::map<std::string, double> scores;
    std::vector<std::pair<std::string, double>> vocab = {{"<unk>", 0}};
    for (int i = 0; i < 12; ++i) {
      std::string piece;
      for (std::size_t n = 1 + random() % 3; n > 0; --n) piece += letters[random() % 3];
      // Powers of two, so that sums are exact and no two cuts have the same.
      if (!scores.emplace(piece, -1.0 - 1.0 / static_cast<double>(std::uint64_t{2} << i)).second) continue;
      vocab.emplace_back(piece, scores[piece]);
    }
    for (const std::string& letter : letters)
      if (scores.emplace(letter, -8).second) vocab.emplace_back(letter, -8);
    const auto unigram = unigram_of(model_of(vocab));
    ASSERT_TRUE(unigram);
    for (int trial = 0; trial < 20; ++trial) {
      std::string word;
      for (std::size_t n = 1 + random() % 9; n > 0; --n) word += letters[random() % 3];
      std::vector<std::optional<double>> best(word.size() + 1);
      best[0] = 0;
      for (std::size_t end = 1; end <= word.size(); ++end)
        for (std::size_t begin = 0; begin < end; ++begin) {
          const auto found = scores.find(word.substr(begin, end - begin));
          if (!best[begin] || found == scores.end()) continue;
          if (!best[end] || *best[begin] + found->second > *best[end]) best[end] = *best[begin] + found->second;
        }
      double sum = 0;
      std::string joined;
      for (const TokenId id : encode(*unigram, word)) {
        joined += unigram->vocabulary().text_of(id);
        sum += scores.at(std::string(unigram->vocabulary().text_of(id)));
      }
      ASSERT_EQ(joined, word);
      ASSERT_EQ(sum, *best.back()) << word;
    }
  }
}

TEST(Unigram, encodes_a_word_of_a_million_characters) {
  const auto unigram = unigram_of(model_of({{"<unk>", 0}, {"a", -3.0}, {"aaaa", -4.0}}));
  EXPECT_EQ(encode(*unigram, std::string(1'000'000, 'a')).size(), 250'000u);
}

TEST(Unigram, damaged_models_are_errors_that_say_what) {
  const auto message = [](const json::Value& model) {
    const auto unigram = unigram_of(model);
    return unigram ? std::string("none") : unigram.error().message;
  };
  const std::string at = "tokenizer.json: the Unigram model: ";
  EXPECT_EQ(message({{"vocab", json::Value::array()}}), at + "'vocab' must be a list of pieces");
  json::Value damaged = model_of({{"a", 0}, {"b", 0}});
  damaged["vocab"][1] = {"b"};
  EXPECT_EQ(message(damaged), at + "'vocab'[1] is not a piece and its score");
  damaged["vocab"][1] = json::Value::array({"b", "x"});
  EXPECT_NE(message(damaged).find(at + "'vocab'[1]: 'score' must be"), std::string::npos) << message(damaged);
  damaged = model_of({{"a", 0}});
  damaged["unk_id"] = 7;
  EXPECT_EQ(message(damaged), at + "unk_id is 7; ids are 0 to 0");
  EXPECT_EQ(message(model_of({{"a", 0}, {"a", 1}})), at + "'vocab'[1]: 'a' is there twice");
  EXPECT_EQ(message(model_of({{std::string(2000, 'a'), 0}})), at + "'vocab'[0] has 2000 bytes; at most 1024 are supported");
}

}  // namespace
}  // namespace baton
