/// The Anthropic dialect as a value (server/dialects/messages/dialect.h).
#include "server/dialects/messages/dialect.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(MessagesDialect, has_its_path_and_what_is_below) {
  EXPECT_TRUE(kMessages.has("/v1/messages"));
  EXPECT_TRUE(kMessages.has("/v1/messages/count_tokens"));
  EXPECT_TRUE(kMessages.has(kMessages.count_path));
  EXPECT_FALSE(kMessages.has("/v1/chat/completions"));
  EXPECT_FALSE(kMessages.has("/v1/messages2"));
}

}  // namespace
}  // namespace baton
