/// The tokens that `cache_control` marks cover (server/dialects/messages/dialect.h).
#include "server/dialects/messages/dialect.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

/// The marked prefixes of a request's whole prompt, in blocks of so many tokens. Tokens are bytes.
std::vector<MarkedPrefix> marked(const json::Value& body, std::int32_t block_len = 4) {
  const ServedModel model = byte_model();
  const auto request = read_messages_request(body, /*needs_max_tokens=*/false);
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  const auto chat = parse_chat_request(request->chat, {}, {kByteModelVocab, 0});
  EXPECT_TRUE(chat) << (chat ? "" : chat.error().message);
  const auto prompt = tokenize_chat(model, {}, *chat);
  EXPECT_TRUE(prompt);
  return marked_prefixes(model, {}, body, request->marks, prompt->tokens, block_len);
}

TEST(CacheMarks, end_where_the_marked_block_ends) {
  const auto found = marked(parsed(R"({"system": [{"type": "text", "text": "abcdef", "cache_control": {"type": "ephemeral"}},
      {"type": "text", "text": "other"}], "messages": [{"role": "user", "content": "hi"}]})"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].n_tokens, 12) << "of [system]abcdef, 14 tokens";
  EXPECT_EQ(found[0].ttl, std::chrono::minutes(5));
}

TEST(CacheMarks, are_the_longest_of_each_time) {
  const auto found = marked(parsed(R"({"system": [{"type": "text", "text": "abcdef", "cache_control": {"type": "ephemeral",
      "ttl": "1h"}}], "messages": [{"role": "user", "content": [
      {"type": "text", "text": "first", "cache_control": {"type": "ephemeral"}},
      {"type": "text", "text": "second one", "cache_control": {"type": "ephemeral"}}]}]})"));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].n_tokens, 20) << "of [system]abcdef[user], after which any text may follow";
  EXPECT_EQ(found[0].ttl, std::chrono::hours(1));
  EXPECT_EQ(found[1].n_tokens, 36) << "of [system]abcdef[user]first and second one, 36 tokens";
}

TEST(CacheMarks, without_a_mark_or_a_whole_block_cover_nothing) {
  EXPECT_TRUE(marked(parsed(R"({"messages": [{"role": "user", "content": "hi"}]})")).empty());
  const json::Value body = parsed(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]})");
  EXPECT_EQ(marked(body).size(), 1u);
  EXPECT_TRUE(marked(body, /*block_len=*/16).empty()) << "[user]hi has 8 tokens";
}

}  // namespace
}  // namespace baton
