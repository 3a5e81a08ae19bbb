/// Tests of streamed text: pieces are whole characters, equal the whole text when joined, and end at stop strings.
#include "text/tokenizer/stream_decoder.h"

#include <random>

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"
#include "text/split/unicode.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

Tokenizer make(const json::Value& root) {
  auto tokenizer = Tokenizer::from_json(json::dump(root), "");
  check(tokenizer.has_value(), [&] { return tokenizer.error().message; });
  return std::move(*tokenizer);
}

struct Streamed {
  std::string text;
  std::optional<std::string> stop;
  std::vector<std::string> pieces;
};

Streamed stream(StreamDecoder& decoder, const Ids& ids) {
  Streamed result;
  const auto take = [&](StreamDecoder::Piece piece) {
    EXPECT_TRUE(unicode::is_valid_utf8(piece.text));
    EXPECT_TRUE(!result.stop || (piece.text.empty() && !piece.stop)) << "something came after the stop string";
    if (piece.stop) result.stop = piece.stop;
    result.text += piece.text;
    result.pieces.push_back(std::move(piece.text));
  };
  for (const TokenId id : ids) take(decoder.push(id));
  take(decoder.finish());
  return result;
}

Streamed stream(const Tokenizer& tokenizer, const Ids& ids, std::vector<std::string> stops, bool include_stop = false) {
  StreamDecoder decoder(tokenizer, std::move(stops), include_stop, true);
  return stream(decoder, ids);
}

Ids random_ids(std::mt19937& random, const Tokenizer& tokenizer) {
  Ids ids(random() % 20);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(tokenizer.n_vocab() + 2)) - 1;
  return ids;
}

TEST(StreamDecoder, pieces_joined_equal_the_decoded_whole) {
  std::mt19937 random(3);
  for (const json::Value& root : {test::byte_level_tokenizer(), test::byte_fallback_tokenizer()}) {
    const Tokenizer tokenizer = make(root);
    for (int round = 0; round < 3000; ++round) {
      const Ids ids = random_ids(random, tokenizer);
      const bool skip = round % 2 == 0;
      StreamDecoder decoder(tokenizer, {}, false, skip);
      ASSERT_EQ(stream(decoder, ids).text, tokenizer.decode(ids, skip));
    }
  }
}

TEST(StreamDecoder, byte_level_text_comes_as_soon_as_it_is_whole) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  Ids ids = tokenizer.encode("a🦙b", false);
  ASSERT_EQ(ids.size(), 6u);
  EXPECT_EQ(stream(tokenizer, ids, {}).pieces, (std::vector<std::string>{"a", "", "", "", "🦙", "b", ""}));
  ids.resize(3);
  EXPECT_EQ(stream(tokenizer, ids, {}).pieces, (std::vector<std::string>{"a", "", "", "\uFFFD"}));
}

TEST(StreamDecoder, the_first_tokens_space_is_stripped_once) {
  const Tokenizer tokenizer = make(test::byte_fallback_tokenizer());
  EXPECT_EQ(stream(tokenizer, tokenizer.encode("the  cat", true), {}).text, "the  cat");
}

TEST(StreamDecoder, behind_a_prompt_gives_what_is_added_to_its_text) {
  const Tokenizer tokenizer = make(test::byte_fallback_tokenizer());
  std::mt19937 random(5);
  int n_spaces_kept = 0;
  for (int round = 0; round < 1000; ++round) {
    // Byte tokens on both sides of the cut could be one character; text tokens are complete by themselves.
    Ids all = random_ids(random, tokenizer);
    std::erase_if(all, [&](TokenId id) { return tokenizer.token_text(id).starts_with("<0x"); });
    const std::size_t n_prompt = all.empty() ? 0 : random() % all.size();
    const Ids prompt(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n_prompt));
    const Ids rest(all.begin() + static_cast<std::ptrdiff_t>(n_prompt), all.end());
    StreamDecoder decoder(tokenizer, {}, false, true);
    decoder.follow(prompt);
    const std::string text = stream(decoder, rest).text;
    EXPECT_EQ(tokenizer.decode(prompt, true) + text, tokenizer.decode(all, true));
    n_spaces_kept += text.starts_with(" ") && !tokenizer.decode(rest, true).starts_with(" ") ? 1 : 0;
  }
  EXPECT_GT(n_spaces_kept, 0);
}

TEST(StreamDecoder, ends_where_the_stop_string_begins) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  const Ids ids = tokenizer.encode("one two three", false);
  const Streamed without = stream(tokenizer, ids, {"wo th", "never"});
  EXPECT_EQ(without.text, "one t");
  EXPECT_EQ(without.stop, "wo th");
  const Streamed with = stream(tokenizer, ids, {"wo th"}, true);
  EXPECT_EQ(with.text, "one two th");
}

TEST(StreamDecoder, text_that_may_begin_a_stop_string_waits) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  StreamDecoder decoder(tokenizer, {"abc"}, false, true);
  const TokenId a = *tokenizer.id_of("a");
  const TokenId b = *tokenizer.id_of("b");
  EXPECT_EQ(decoder.push(a).text, "");
  EXPECT_EQ(decoder.push(a).text, "a");
  EXPECT_EQ(decoder.push(b).text, "");
  EXPECT_EQ(decoder.push(b).text, "abb");
  EXPECT_EQ(decoder.push(a).text, "");
  EXPECT_EQ(decoder.finish().text, "a");
}

TEST(StreamDecoder, of_stop_strings_that_end_together_the_longest_counts) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  const Streamed result = stream(tokenizer, tokenizer.encode("xaab", false), {"b", "aab", "ab", ""});
  EXPECT_EQ(result.text, "x");
  EXPECT_EQ(result.stop, "aab");
}

TEST(StreamDecoder, stops_within_a_token_and_in_what_was_held_to_the_end) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  const Streamed inside = stream(tokenizer, {258, 258}, {"he"});
  EXPECT_EQ(inside.text, " t");
  const Tokenizer llama = make(test::byte_fallback_tokenizer());
  const Streamed at_end = stream(llama, {263, 3 + 'x'}, {"x"});
  EXPECT_EQ(at_end.text, "c");
  EXPECT_EQ(at_end.stop, "x");
}

TEST(StreamDecoder, stops_where_a_search_byte_by_byte_does) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    Ids ids(random() % 12);
    for (TokenId& id : ids) id = *tokenizer.id_of(std::string(1, "abth"[random() % 4]));
    if (random() % 2 == 0) ids.push_back(257);
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops)
      for (std::size_t n = 1 + random() % 3; n > 0; --n) stop += "abthe"[random() % 5];

    const std::string whole = tokenizer.decode(ids, true);
    std::string expected = whole;
    std::optional<std::string> expected_stop;
    for (std::size_t end = 1; end <= whole.size() && !expected_stop; ++end)
      for (const std::string& stop : stops) {
        if (!std::string_view(whole).substr(0, end).ends_with(stop)) continue;
        if (expected_stop && expected_stop->size() >= stop.size()) continue;
        expected_stop = stop;
        expected = whole.substr(0, end - stop.size());
      }
    const Streamed result = stream(tokenizer, ids, stops);
    ASSERT_EQ(result.text, expected) << whole;
    ASSERT_EQ(result.stop, expected_stop) << whole;
  }
}

TEST(StreamDecoder, looks_for_stop_strings_after_the_least_number_of_tokens) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  const Ids ids = {'a', 'b', 'c', 'a', 'b', 'c', 'd'};
  const auto text_of = [&](std::int32_t min_tokens) {
    StreamDecoder decoder(tokenizer, {"bc"}, false, true, min_tokens);
    return stream(decoder, ids).text;
  };
  EXPECT_EQ(text_of(0), "a");
  EXPECT_EQ(text_of(1), "a");
  EXPECT_EQ(text_of(2), "abca") << "one that began before is text";
  EXPECT_EQ(text_of(3), "abca");
  EXPECT_EQ(text_of(6), "abcabcd");
  EXPECT_EQ(text_of(100), "abcabcd");
}

TEST(StreamDecoder, does_not_stop_at_the_end_of_the_least_number_of_tokens) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  const auto text_of = [&](const Ids& ids) {
    StreamDecoder decoder(tokenizer, {"\uFFFD"}, false, true, /*min_tokens=*/2);
    return stream(decoder, ids).text;
  };
  EXPECT_EQ(text_of({'a', 0xE2}), "a\uFFFD") << "half a character of the last of these tokens, held to the end";
  EXPECT_EQ(text_of({'a', 'b', 0xE2}), "ab");
}

TEST(StreamDecoder, shows_the_special_tokens_that_it_is_told_to) {
  const Tokenizer tokenizer = make(test::byte_level_tokenizer());
  Ids special;
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id)
    if (tokenizer.is_special(id)) special.push_back(id);
  ASSERT_FALSE(special.empty());
  const auto shown_of = [&](SharedList<TokenId> shown) {
    StreamDecoder decoder(tokenizer, {}, false, /*skip_special_tokens=*/true);
    decoder.show(std::move(shown));
    return stream(decoder, {special[0], 65, special[0]}).text;
  };
  const std::string first(tokenizer.token_text(special[0]));
  const std::string letter = tokenizer.decode(Ids{65}, true);
  EXPECT_EQ(shown_of({}), letter);
  EXPECT_EQ(shown_of({65}), letter);
  EXPECT_EQ(shown_of({special[0]}), first + letter + first);
}

}  // namespace
}  // namespace baton
