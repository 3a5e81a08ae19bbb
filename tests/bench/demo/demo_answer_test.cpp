/// Streamed answers of `baton demo` (bench/demo/demo_answer.h).
#include "bench/demo/demo_answer.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(DemoAnswer, joins_the_text_and_the_ids_of_frames) {
  DemoAnswer answer;
  EXPECT_TRUE(answer.take(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 1));
  EXPECT_EQ(answer.first_token_s, -1);
  EXPECT_TRUE(answer.take(R"({"choices":[{"delta":{"content":"Hel"},"token_ids":[5,6]}]})", 2));
  EXPECT_TRUE(answer.take(R"({"choices":[{"delta":{"content":"lo"},"token_ids":[7]}]})", 3));
  EXPECT_TRUE(answer.take(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})", 4));
  EXPECT_TRUE(answer.take(R"({"choices":[],"usage":{}})", 5));
  EXPECT_FALSE(answer.is_complete);
  EXPECT_TRUE(answer.take("[DONE]", 6));
  EXPECT_TRUE(answer.is_complete);
  EXPECT_EQ(answer.text, "Hello");
  EXPECT_EQ(answer.token_ids, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(answer.first_token_s, 2);
}

TEST(DemoAnswer, names_what_is_wrong_with_a_frame) {
  for (const std::string_view wrong :
       {"nonsense", "[]", "{}", R"({"choices":5})", R"({"choices":[5]})", R"({"choices":[{}]})",
        R"({"choices":[{"delta":{"content":5}}]})", R"({"choices":[{"delta":{},"token_ids":["x"]}]})",
        R"({"choices":[{"delta":{},"token_ids":[1e300]}]})", R"({"error":{"message":"no"}})"}) {
    DemoAnswer answer;
    const auto taken = answer.take(wrong, 1);
    ASSERT_FALSE(taken) << wrong;
    EXPECT_FALSE(taken.error().message.empty());
  }
}

}  // namespace
}  // namespace baton
