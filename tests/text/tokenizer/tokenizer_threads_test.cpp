/// Long texts encoded by several threads (Tokenizer::use_threads): the same ids as by one.
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/source_folder.h"
#include "support/tokenizer_files.h"
#include "text/split/unicode.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

/// A text of words, spaces, digits, punctuation and characters of all kinds, with `special` inside.
std::string random_text(std::mt19937& random, std::size_t n_bytes, const std::vector<std::string>& special) {
  static const std::vector<std::string> kParts = {" the", "the", " ", "  ", "\n", "\n\n", "\t", "don't", "12345", "...",
                                                  "é",    "的",  "▁", "ß",  "ﬁ",  "Ⅷ",    "😀", " x",    "A",     "e\u0301"};
  std::string text;
  while (text.size() < n_bytes) {
    const unsigned kind = random() % 100;
    if (kind < 60) {
      text += kParts[random() % kParts.size()];
    } else if (kind < 97 || special.empty()) {
      const char32_t c = random() % (kind < 90 ? 0x3000 : 0x110000);
      unicode::append_utf8(text, c >= 0xD800 && c < 0xE000 ? U' ' : c);
    } else if (kind == 98) {
      text += special[random() % special.size()];
    } else {
      text += std::string(random() % 200, static_cast<char>('a' + random() % 3));
    }
  }
  return text;
}

void expect_same(Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text, true));
  for (const int n_threads : {2, 5}) {
    tokenizer.use_threads(n_threads, 1);
    for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(tokenizer.encode(texts[i], true), expected[i]) << texts[i];
  }
  tokenizer.use_threads(1, 1);
}

std::vector<std::string> texts_for(const Tokenizer& tokenizer, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> special;
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id)
    if (tokenizer.is_special(id)) special.emplace_back(tokenizer.token_text(id));
  std::vector<std::string> texts = {"", "a", " ", "é"};
  for (std::size_t i = 0; i < 40; ++i)
    texts.push_back(random_text(random, 50 * i, i % 2 == 0 ? std::vector<std::string>{} : special));
  texts.push_back(*read_file(test::source_folder() / "models/demo/catalogue.txt"));
  texts.push_back(std::string(5000, ' ') + std::string(5000, 'a') + std::string(3000, '\n'));
  return texts;
}

TEST(TokenizerThreads, give_the_ids_of_one_thread_for_every_golden) {
  int n_tokenizers = 0;
  for (const char* goldens : {"tests/goldens/tokenizers", "tests/goldens/sentencepiece"})
    for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() / goldens)) {
      SCOPED_TRACE(entry.path().filename().string());
      auto tokenizer = Tokenizer::load(entry.path());
      ASSERT_TRUE(tokenizer) << tokenizer.error().message;
      expect_same(*tokenizer, texts_for(*tokenizer, 11));
      ++n_tokenizers;
    }
  EXPECT_GE(n_tokenizers, 14);
}

TEST(TokenizerThreads, several_callers_get_the_ids_of_one_for_every_golden) {
  for (const char* goldens : {"tests/goldens/tokenizers", "tests/goldens/sentencepiece"})
    for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() / goldens)) {
      SCOPED_TRACE(entry.path().filename().string());
      const auto tokenizer = Tokenizer::load(entry.path());
      ASSERT_TRUE(tokenizer) << tokenizer.error().message;
      const std::vector<std::string> texts = texts_for(*tokenizer, 13);
      std::vector<Ids> expected;
      std::vector<std::string> decoded;
      for (const std::string& text : texts) {
        expected.push_back(tokenizer->encode(text, true));
        decoded.push_back(tokenizer->decode(expected.back(), false));
      }
      // Another tokenizer of the same file, so that nothing that the first one remembers hides a race.
      const auto fresh = Tokenizer::load(entry.path());
      ASSERT_TRUE(fresh);
      std::vector<int> n_wrong(4, 0);
      std::vector<std::thread> callers;
      for (int& wrong : n_wrong)
        callers.emplace_back([&] {
          for (std::size_t i = 0; i < texts.size(); ++i) {
            wrong += fresh->encode(texts[i], true) == expected[i] ? 0 : 1;
            wrong += fresh->decode(expected[i], false) == decoded[i] ? 0 : 1;
          }
        });
      for (std::thread& caller : callers) caller.join();
      EXPECT_EQ(n_wrong, (std::vector<int>{0, 0, 0, 0}));
    }
}

TEST(TokenizerThreads, give_the_ids_of_one_thread_for_real_tokenizers) {
  const auto data = test::tokenizer_data();
  if (data.empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  for (const char* file : {"gpt2/tokenizer.json.zst", "falcon/tokenizer.json.zst", "phi-3/tokenizer.json.zst"}) {
    SCOPED_TRACE(file);
    auto tokenizer = Tokenizer::from_json(test::decompress(data / file), "");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    expect_same(*tokenizer, texts_for(*tokenizer, 12));
  }
}

TEST(TokenizerThreads, callers_that_meet_a_busy_team_encode_alone) {
  auto tokenizer = Tokenizer::from_json(json::dump(test::byte_level_tokenizer()), "");
  ASSERT_TRUE(tokenizer);
  const std::string text = *read_file(test::source_folder() / "models/demo/catalogue.txt");
  const Ids expected = tokenizer->encode(text, false);
  tokenizer->use_threads(3, 1);
  std::vector<int> n_wrong(4, 0);
  std::vector<std::thread> callers;
  for (int& wrong : n_wrong)
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) wrong += tokenizer->encode(text, false) == expected ? 0 : 1;
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(n_wrong, (std::vector<int>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace baton
