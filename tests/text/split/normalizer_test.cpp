/// Tests of normalizers.
#include "text/split/normalizer.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

std::string normalize(const json::Value& value, std::string_view text) {
  const auto normalizer = Normalizer::from_json(value);
  return normalizer ? normalizer->normalize(text, UnlimitedWork().meter()) : "error: " + normalizer.error().message;
}

TEST(Normalizer, null_changes_nothing) { EXPECT_EQ(normalize(nullptr, " a "), " a "); }

TEST(Normalizer, llama_prepends_to_text_that_is_not_empty_and_replaces_spaces) {
  const json::Value value = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "▁"}}, {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  EXPECT_EQ(normalize(value, "a b"), "▁a▁b");
  EXPECT_EQ(normalize(value, " "), "▁▁");
  EXPECT_EQ(normalize(value, ""), "");
}

TEST(Normalizer, replaces_by_regular_expressions_and_strips) {
  EXPECT_EQ(normalize({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "$1"}}, "a   b c"), "a$1b c");
  EXPECT_EQ(normalize({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, "\u3000 a "), "a ");
  EXPECT_EQ(normalize({{"type", "Strip"}}, " \n "), "");
}

TEST(Normalizer, brings_text_into_unicodes_forms) {
  EXPECT_EQ(normalize({{"type", "NFC"}}, "e\u0301ﬁ"), "éﬁ") << "as Qwen's files ask";
  EXPECT_EQ(normalize({{"type", "NFD"}}, "éﬁ"), "e\u0301ﬁ");
  EXPECT_EQ(normalize({{"type", "NFKC"}}, "e\u0301ﬁ"), "éfi");
  EXPECT_EQ(normalize({{"type", "NFKD"}}, "éﬁ"), "e\u0301fi");
}

// What `tokenizers` 0.23 makes of these texts.
TEST(Normalizer, rewrites_single_characters) {
  EXPECT_EQ(normalize({{"type", "Lowercase"}}, "ÀΣİꟜ"), "àσi\u0307ƛ");
  EXPECT_EQ(normalize({{"type", "Nmt"}}, "a\x01\u200Bb\uFEFF\tc"), "a b  c");
  EXPECT_EQ(normalize({{"type", "StripAccents"}}, "e\u0301n\u0303é"), "ené");
  EXPECT_EQ(normalize({{"type", "ByteLevel"}}, " é\n"), "ĠÃ©Ċ");
}

TEST(Normalizer, leaves_marks_alone_that_are_newer_than_unicode_9) {
  EXPECT_EQ(normalize({{"type", "NFC"}}, "e\u0898\u0301"), "e\u0898\u0301") << "U+0898 is of Unicode 14";
  EXPECT_EQ(normalize({{"type", "NFC"}}, "e\u0301\u0898"), "é\u0898");
}

TEST(Normalizer, names_what_it_does_not_do) {
  EXPECT_EQ(normalize({{"type", "Mamba"}}, ""), "error: tokenizer.json: the normalizer Mamba is not supported");
  EXPECT_EQ(normalize({{"type", "Precompiled"}}, ""), "error: Precompiled: 'precompiled_charsmap' is missing");
  EXPECT_EQ(normalize({{"type", "Precompiled"}, {"precompiled_charsmap", "a*=="}}, ""),
            "error: normalizer Precompiled: precompiled_charsmap is not base64");
  EXPECT_EQ(normalize({{"type", "Prepend"}}, "").substr(0, 6), "error:");
  EXPECT_EQ(normalize(3, "").substr(0, 6), "error:");
}

TEST(Normalizer, steps_that_would_make_a_text_far_too_long_do_nothing) {
  const auto replace = [](const std::string& pattern, const std::string& content) {
    return json::Value{{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
  };
  json::Value steps = json::Value::array();
  for (int i = 0; i < 60; ++i) steps.push_back(replace("a", "aa"));
  EXPECT_EQ(normalize({{"type", "Sequence"}, {"normalizers", steps}}, "xa"), "x" + std::string(256, 'a'));
  EXPECT_EQ(normalize(replace("a", std::string(1000, 'b')), "a"), "a");
  EXPECT_EQ(normalize(replace("", std::string(1000, 'b')), "a"), "a");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", std::string(1000, 'b')}}, "a"), "a");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", std::string(100, 'b')}}, "a"), std::string(100, 'b') + "a");
}

TEST(Normalizer, refuses_sequences_without_end) {
  json::Value value = {{"type", "Strip"}};
  for (int i = 0; i < 100; ++i) value = {{"type", "Sequence"}, {"normalizers", json::Value::array({value})}};
  EXPECT_FALSE(Normalizer::from_json(value));
}

}  // namespace
}  // namespace baton
