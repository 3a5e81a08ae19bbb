/// Tests of pre-tokenizers: where words are cut.
#include "text/split/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

/// The words that `value` makes of `text`, joined by '|'.
std::string split(const json::Value& value, std::string_view text, bool begins_input = true) {
  const auto pre_tokenizer = PreTokenizer::from_json(value);
  if (!pre_tokenizer) return "error: " + pre_tokenizer.error().message;
  const PieceList words =
      pre_tokenizer->split({std::string(text), {{{0, text.size()}, begins_input}}}, UnlimitedWork().meter());
  std::string out;
  for (const PieceList::Piece& piece : words.pieces) {
    EXPECT_LT(piece.range.begin, piece.range.end);
    if (!out.empty()) out += '|';
    out += words.text.substr(piece.range.begin, piece.range.end - piece.range.begin);
  }
  return out;
}

json::Value split_at(const char* behavior, bool invert) {
  return {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
}

TEST(PreTokenizer, byte_level_cuts_as_gpt2_does) {
  const json::Value value = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(split(value, "it's 12 é  x\n"), "it|'s|Ġ12|ĠÃ©|Ġ|Ġx|Ċ");
  EXPECT_EQ(split({{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}, "a b"), "ĠaĠb");
  EXPECT_EQ(split({{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}, " a"), "Ġa");
}

TEST(PreTokenizer, split_knows_every_behavior) {
  EXPECT_EQ(split(split_at("Isolated", false), "a--b-"), "a|-|-|b|-");
  EXPECT_EQ(split(split_at("Removed", false), "a--b-"), "a|b");
  EXPECT_EQ(split(split_at("MergedWithPrevious", false), "a--b-"), "a-|-|b-");
  EXPECT_EQ(split(split_at("MergedWithNext", false), "-a--b-"), "-a|-|-b|-");
  EXPECT_EQ(split(split_at("Contiguous", false), "a--b-"), "a|--|b|-");
  EXPECT_EQ(split(split_at("Removed", true), "a--b-"), "-|-|-");
  EXPECT_EQ(split(split_at("Sideways", false), "").substr(0, 6), "error:");
}

TEST(PreTokenizer, digits_punctuation_and_white_space) {
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", true}}, "ab123²"), "ab|1|2|3|²");
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", false}}, "ab123c"), "ab|123|c");
  EXPECT_EQ(split({{"type", "Punctuation"}}, "a+b«..»"), "a|+|b|«|.|.|»");
  EXPECT_EQ(split({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a+-b"), "a|+-|b");
  EXPECT_EQ(split({{"type", "Whitespace"}}, " Hey man!? \n x_1"), "Hey|man|!?|x_1");
  EXPECT_EQ(split({{"type", "WhitespaceSplit"}}, " Hey man!?\u3000x"), "Hey|man!?|x");
  EXPECT_EQ(split({{"type", "CharDelimiterSplit"}, {"delimiter", "é"}}, "aébéé"), "a|b");
}

TEST(PreTokenizer, asks_whether_it_is_cancelled_while_it_cuts_a_long_word) {
  const std::string text(1'000'000, 'a');
  for (const json::Value& value :
       {json::Value{{"type", "Digits"}}, json::Value{{"type", "Punctuation"}}, json::Value{{"type", "WhitespaceSplit"}}}) {
    int n_asked = 0;
    WorkBudget budget({.steps = 1 << 30, .bytes = 1 << 30}, [&] { return ++n_asked == 0; });
    WorkMeter meter(budget);
    (void)PreTokenizer::from_json(value)->split({text, {{{0, text.size()}, true}}}, meter);
    EXPECT_GE(n_asked, 60) << json::dump(value);
  }
}

TEST(PreTokenizer, metaspace_prepends_as_its_scheme_says) {
  const auto metaspace = [](const char* scheme, bool is_split) {
    return json::Value{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", is_split}};
  };
  EXPECT_EQ(split(metaspace("always", true), "a b", false), "▁a|▁b");
  EXPECT_EQ(split(metaspace("always", true), " a"), "▁a");
  EXPECT_EQ(split(metaspace("first", false), "a b", true), "▁a▁b");
  EXPECT_EQ(split(metaspace("first", false), "a b", false), "a▁b");
  EXPECT_EQ(split(metaspace("never", true), "a  b"), "a|▁|▁b");
  EXPECT_EQ(split({{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", false}}, "a b"), "a|▁b");
}

TEST(PreTokenizer, knows_letters_and_digits_that_are_newer_than_pcre2) {
  EXPECT_EQ(split({{"type", "ByteLevel"}, {"add_prefix_space", false}}, "a\U00016D40 \u1C89a"), "aðĸµĢ|Ġá²īa");
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", true}}, "a\U00010D40"), "a|\U00010D40");
}

TEST(PreTokenizer, a_sequence_applies_each_to_what_the_one_before_left) {
  const json::Value value = {{"type", "Sequence"},
                             {"pretokenizers",
                              {{{"type", "Digits"}, {"individual_digits", true}},
                               {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  EXPECT_EQ(split(value, "a 12b"), "a|Ġ|1|2|b");
}

TEST(PreTokenizer, names_what_it_does_not_do) {
  EXPECT_EQ(split({{"type", "Sudachi"}}, ""), "error: tokenizer.json: the pre_tokenizer Sudachi is not supported");
  for (const char* type : {"BertPreTokenizer", "UnicodeScripts", "FixedLength"})
    EXPECT_EQ(split({{"type", type}}, ""),
              std::string("error: tokenizer.json: the pre_tokenizer ") + type + " is not supported");
  EXPECT_EQ(split({{"type", "Split"}}, "").substr(0, 6), "error:");
}

}  // namespace
}  // namespace baton
