/// Tests of normalizers.
#include "text/normalizer.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

std::string normalize(const json::Value& value, std::string_view text) {
  const auto normalizer = Normalizer::from_json(value);
  return normalizer ? normalizer->normalize(text) : "error: " + normalizer.error().message;
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

TEST(Normalizer, names_what_it_does_not_do) {
  EXPECT_EQ(normalize({{"type", "Nmt"}}, ""), "error: tokenizer.json: the normalizer Nmt is not supported");
  EXPECT_EQ(normalize({{"type", "Prepend"}}, "").substr(0, 6), "error:");
  EXPECT_EQ(normalize(3, "").substr(0, 6), "error:");
}

TEST(Normalizer, refuses_sequences_without_end) {
  json::Value value = {{"type", "Strip"}};
  for (int i = 0; i < 100; ++i) value = {{"type", "Sequence"}, {"normalizers", json::Value::array({value})}};
  EXPECT_FALSE(Normalizer::from_json(value));
}

}  // namespace
}  // namespace baton
