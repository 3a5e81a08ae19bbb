/// Fields of formats by their types, and the errors that name them.
#include "grammar/front/tag_fields.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace baton::grammar {
namespace {

const json::Value& format() {
  static const json::Value value = *json::parse(
      R"({"text": "a", "flag": true, "null": null, "list": ["b", "a", "b"], "none": [], "empty": ["a", ""], "number": 1, "end": "c"})",
      "it");
  return value;
}

/// The message of a refusal; empty if there is none.
template <class T>
std::string refusal(const Result<T>& result) {
  return result ? "" : result.error().message;
}

TEST(TagFields, are_read_by_their_types) {
  EXPECT_EQ(**field(format(), "number", "/p"), 1);
  EXPECT_EQ(text_of(format(), "text", "/p").value(), "a");
  EXPECT_TRUE(flag_of(format(), "flag", "/p").value());
  EXPECT_FALSE(flag_of(format(), "null", "/p").value());
  EXPECT_FALSE(flag_of(format(), "absent", "/p").value());
  EXPECT_EQ((*list_of(format(), "list", "/p"))->size(), 3u);
  EXPECT_EQ(texts_of(format(), "list", "/p").value(), (Ends{"b", "a"})) << "each once";
  EXPECT_TRUE(texts_of(format(), "absent", "/p")->empty());
  EXPECT_TRUE(texts_of(format(), "null", "/p")->empty());
}

TEST(TagFields, ends_are_a_text_or_several) {
  EXPECT_EQ(ends_of(format(), "/p").value(), Ends{"c"});
  EXPECT_TRUE(ends_of(*json::parse(R"({"end": ""})", "it"), "/p")->empty());
  const json::Value several = *json::parse(R"({"end": ["a", "b"]})", "it");
  EXPECT_EQ(ends_of(several, "/p").value(), (Ends{"a", "b"}));
  EXPECT_EQ(refusal(ends_of(*json::parse("{}", "it"), "/p")), "the structural tag: /p has no 'end'");
}

TEST(TagFields, of_other_types_are_named_by_their_path) {
  EXPECT_EQ(refusal(field(format(), "absent", "/p")), "the structural tag: /p has no 'absent'");
  EXPECT_EQ(refusal(text_of(format(), "flag", "/p")), "the structural tag: /p/flag must be a string");
  EXPECT_EQ(refusal(flag_of(format(), "text", "/p")), "the structural tag: /p/text must be true or false");
  EXPECT_EQ(refusal(list_of(format(), "none", "/p")), "the structural tag: /p/none must be a list that is not empty");
  for (const std::string_view key : {"empty", "number", "text"})
    EXPECT_EQ(refusal(texts_of(format(), key, "/p")),
              "the structural tag: /p/" + std::string(key) + " must be a list of texts that are not empty");
  json::Value many;
  for (std::size_t i = 0; i <= kMaxTexts; ++i) many["list"].push_back(std::to_string(i));
  const auto refused = texts_of(many, "list", "/p");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::too_large);
}

}  // namespace
}  // namespace baton::grammar
