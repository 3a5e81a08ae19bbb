/// Tests of reading a tokenizer.json's components: bounds and messages.
#include "text/split/component.h"

#include <gtest/gtest.h>

namespace baton::component {
namespace {

TEST(Component, has_a_type_within_bounds) {
  EXPECT_EQ(*type_of({{"type", "Split"}}, "pre_tokenizer", 0, 0), "Split");
  EXPECT_FALSE(type_of({{"type", "Split"}}, "pre_tokenizer", kMaxDepth + 1, 0));
  EXPECT_FALSE(type_of({{"type", "Split"}}, "pre_tokenizer", 0, kMaxSteps));
  EXPECT_FALSE(type_of({{"type", 3}}, "pre_tokenizer", 0, 0));
  EXPECT_FALSE(type_of(json::Value::array(), "pre_tokenizer", 0, 0));
}

TEST(Component, fields_may_be_absent_or_null_but_not_of_another_type) {
  const json::Value value = {{"yes", true}, {"none", nullptr}, {"text", "a"}};
  EXPECT_TRUE(*get_or<bool>(value, "Split", "yes", false));
  EXPECT_FALSE(*get_or<bool>(value, "Split", "none", false));
  EXPECT_TRUE(*get_or<bool>(value, "Split", "absent", true));
  const auto wrong = get_or<bool>(value, "Split", "text", false);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_data);
  EXPECT_EQ(wrong.error().message, "Split: 'text' must be true or false, not a string");
  EXPECT_FALSE(get<bool>(value, "Split", "absent"));
}

TEST(Component, what_is_not_done_is_named) {
  EXPECT_EQ(unsupported("normalizer", "NFKC").value().message, "tokenizer.json: the normalizer NFKC is not supported");
  EXPECT_FALSE(members_of({{"type", "Sequence"}}, "normalizer", "normalizers"));
}

}  // namespace
}  // namespace baton::component
