/// Tests of decoders: whole texts, streamed texts, and the bytes of single tokens.
#include "text/tokenizer/token_decoder.h"

#include <random>

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"

namespace baton {
namespace {

json::Value sequence(const json::Value& decoders) { return {{"type", "Sequence"}, {"decoders", decoders}}; }
json::Value replace(const char* what, const char* by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}
json::Value strip(int start, int stop) { return {{"type", "Strip"}, {"content", " "}, {"start", start}, {"stop", stop}}; }

std::string decode(const json::Value& value, const std::vector<std::string>& tokens) {
  const auto decoder = TokenDecoder::from_json(value);
  if (!decoder) return "error: " + decoder.error().message;
  std::string out;
  TokenDecoder::Stream stream(*decoder);
  for (const std::string& token : tokens) {
    stream.push(token, out);
    EXPECT_TRUE(unicode::is_valid_utf8(out));
  }
  stream.finish(out);
  return out;
}

const json::Value kLlama = test::byte_fallback_tokenizer()["decoder"];
const json::Value kByteLevel = {{"type", "ByteLevel"}};

TEST(TokenDecoder, null_joins_tokens_by_spaces) { EXPECT_EQ(decode(nullptr, {"a", "", "b"}), "a  b"); }

TEST(TokenDecoder, llama_strips_one_space_and_reads_bytes) {
  EXPECT_EQ(decode(kLlama, {"▁a", "▁b"}), "a b");
  EXPECT_EQ(decode(kLlama, {"▁▁a"}), " a");
  EXPECT_EQ(decode(kLlama, {"▁", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "x"}), "🦙x");
  EXPECT_EQ(decode(kLlama, {"<0x41>", "<0xFF>"}), "\uFFFD\uFFFD") << "a run of bytes is UTF-8 as a whole or not at all";
  EXPECT_EQ(decode(kLlama, {"<0xF0>", "x", "<0x41>"}), "\uFFFDxA");
  EXPECT_EQ(decode(kLlama, {"<0xF0", "<0xGG>", "<0X41>"}), "<0xF0<0xGG><0X41>");
  EXPECT_EQ(decode(kLlama, {}), "");
}

TEST(TokenDecoder, byte_level_joins_bytes_across_tokens) {
  EXPECT_EQ(decode(kByteLevel, {"Ġa", "Ã", "©", "Ã"}), " aé\uFFFD");
  EXPECT_EQ(decode(kByteLevel, {"a b", "Ġ日"}), "a bĠ日") << "tokens with other characters stay as they are";
}

TEST(TokenDecoder, metaspace_and_strip_work_token_by_token_before_fuse) {
  const json::Value metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(decode(metaspace, {"▁a▁", "▁b"}), "a b");
  const json::Value never = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}};
  EXPECT_EQ(decode(never, {"▁a", "▁b"}), " a b");
  EXPECT_EQ(decode(strip(1, 1), {"  a ", " b"}), " ab");
}

TEST(TokenDecoder, strip_and_replace_after_fuse_see_one_text) {
  const json::Value fuse = {{"type", "Fuse"}};
  EXPECT_EQ(decode(sequence({fuse, strip(2, 1)}), {" ", " ", " ", "a", " ", " "}), " a ");
  EXPECT_EQ(decode(sequence({fuse, strip(1, 2)}), {"a", " ", "b", " "}), "a b");
  EXPECT_EQ(decode(sequence({fuse, replace("aab", "X")}), {"a", "a", "a", "b", "a", "a"}), "aXaa");
  EXPECT_EQ(decode(sequence({kByteLevel, replace("é", "e")}), {"Ã", "©", "Ã"}), "e\uFFFD");
}

TEST(TokenDecoder, gives_the_bytes_of_tokens_in_mid_text) {
  const auto llama = TokenDecoder::from_json(kLlama);
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->bytes_of("▁a"), " a");
  EXPECT_EQ(llama->bytes_of("<0xF0>"), "\xF0");
  const auto byte_level = TokenDecoder::from_json(kByteLevel);
  ASSERT_TRUE(byte_level);
  EXPECT_EQ(byte_level->bytes_of("ĠÃ"), " \xC3");
  EXPECT_EQ(TokenDecoder::for_sentencepiece(true).bytes_of("▁"), " ");
}

// What `tokenizers` 0.23 makes of these tokens.
TEST(TokenDecoder, joins_words_by_their_ends) {
  EXPECT_EQ(decode({{"type", "BPEDecoder"}}, {"the</w>", "ca", "t</w>"}), "the cat");
}

TEST(TokenDecoder, the_end_of_a_word_behind_a_prompt_is_a_space) {
  const auto decoder = TokenDecoder::from_json({{"type", "BPEDecoder"}});
  ASSERT_TRUE(decoder);
  TokenDecoder::Stream stream(*decoder);
  std::string prompt;
  stream.push("the</w>", prompt);
  stream.drop_held();
  std::string out;
  stream.push("cat</w>", out);
  stream.finish(out);
  EXPECT_EQ(out, " cat");
}

TEST(TokenDecoder, cleans_up_spaces_as_transformers_does_however_the_text_comes) {
  auto decoder = TokenDecoder::from_json({{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}});
  ASSERT_TRUE(decoder);
  decoder->clean_up_spaces();
  const std::string text = "a▁.▁b▁!▁c▁?d▁,▁it▁'s▁do▁n't▁we▁'▁ve▁▁.▁'▁'s▁x▁'▁'▁'m▁I▁'re▁";
  const std::string expected = "a. b! c?d, it's don't we've .''s x'''m I're ";
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    TokenDecoder::Stream stream(*decoder);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t n = 1 + random() % 9;
      while (at + n < text.size() && (static_cast<unsigned char>(text[at + n]) & 0xC0) == 0x80) ++n;
      stream.push(text.substr(at, n), out);
      at += n;
    }
    stream.finish(out);
    ASSERT_EQ(out, expected);
  }
}

TEST(TokenDecoder, steps_that_could_make_a_text_far_too_long_are_refused) {
  constexpr const char* kError = "error: decoder: its steps could make a text more than 4096 times as long";
  const auto chain = [](const json::Value& step, int n) {
    json::Value steps = json::Value::array();
    for (int i = 0; i < n; ++i) steps.push_back(step);
    return sequence(steps);
  };
  EXPECT_EQ(decode(chain(replace("a", "aa"), 12), {"xa"}), "x" + std::string(4096, 'a'));
  EXPECT_EQ(decode(chain(replace("a", "aa"), 13), {}), kError);
  EXPECT_EQ(decode(replace("a", std::string(5000, 'b').c_str()), {}), kError);
  EXPECT_EQ(decode(chain(replace("aa", "bb"), 60), {"aa"}), "bb");
  EXPECT_EQ(decode(chain({{"type", "Metaspace"}, {"replacement", ""}}, 20), {}), kError);
}

TEST(TokenDecoder, names_what_it_does_not_do) {
  EXPECT_EQ(decode({{"type", "Unknown"}}, {}), "error: tokenizer.json: the decoder Unknown is not supported");
  EXPECT_EQ(decode({{"type", "BPEDecoder"}, {"suffix", ""}}, {}), "error: decoder BPEDecoder: the suffix is empty");
  EXPECT_EQ(decode(sequence({{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}), {}),
            "error: tokenizer.json: the decoder ByteFallback after Fuse or ByteLevel is not supported");
  EXPECT_EQ(decode(sequence({{{"type", "Fuse"}}, {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", ""}}}), {}),
            "error: tokenizer.json: the decoder Replace of a Regex after Fuse or ByteLevel is not supported");
  EXPECT_EQ(decode(strip(-1, 0), {}).substr(0, 6), "error:");
}

}  // namespace
}  // namespace baton
