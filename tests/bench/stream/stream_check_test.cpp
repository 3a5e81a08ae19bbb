/// The streams that `baton bench stream` accepts, and the faults that it finds (bench/stream/stream_check.h).
#include "bench/stream/stream_check.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

const HttpHead kHead{"HTTP/1.1 200 OK", 200, "text/event-stream; charset=utf-8", true};

std::string frame(std::string_view rest) {
  return fmt::format("data: {{\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"model\":\"demo\",{}}}\n\n", rest);
}
std::string choice(std::string_view delta, std::string_view rest = "") {
  return frame(fmt::format(R"("choices":[{{"index":0,"delta":{{{}}},"finish_reason":null{}}}])", delta, rest));
}
std::string says(std::string_view text, int id) {
  return choice(fmt::format(R"("content":"{}")", text), fmt::format(R"(,"token_ids":[{}])", id));
}
const std::string kRole = choice(R"("role":"assistant","content":"")");
const std::string kLength = frame(R"("choices":[{"index":0,"delta":{},"finish_reason":"length"}])");
const std::string kStop = frame(R"("choices":[{"index":0,"delta":{},"finish_reason":"stop"}])");
std::string usage(int n_tokens) { return frame(fmt::format(R"("choices":[],"usage":{{"completion_tokens":{}}})", n_tokens)); }
constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string joined(const std::vector<std::string>& events) {
  std::string bytes;
  for (const std::string& event : events) bytes += event;
  return bytes;
}

StreamCheck checked(const std::vector<std::string>& events, StreamExpectation expected = {.is_chat = true, .has_ids = true},
                    const HttpHead& head = kHead) {
  StreamCheck check(expected);
  for (const std::string& event : events) check.push(head, event);
  check.finish(head);
  return check;
}

TEST(StreamCheck, accepts_a_whole_stream_however_its_bytes_are_cut) {
  const std::string bytes = joined({kRole, says("Hel", 7), says("lo", 8), kLength, usage(2), std::string(kDone)});
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    StreamCheck check({.is_chat = true, .has_ids = true});
    std::int64_t n_frames = 0;
    for (std::size_t at = 0; at < bytes.size(); at += size)
      n_frames += check.push(kHead, std::string_view(bytes).substr(at, size));
    check.finish(kHead);
    EXPECT_EQ(check.fault(), "");
    EXPECT_EQ(n_frames, 2);
    EXPECT_EQ(check.n_tokens(), 2);
    EXPECT_EQ(check.n_lost(), 0);
  }
}

TEST(StreamCheck, counts_tokens_that_were_lost_or_came_twice) {
  const StreamCheck lost = checked({kRole, says("a", 1), kLength, usage(3), std::string(kDone)});
  EXPECT_EQ(lost.n_lost(), 2);
  EXPECT_TRUE(lost.fault().starts_with("1 tokens came, and the usage says 3")) << lost.fault();
  const StreamCheck twice = checked({kRole, says("a", 1), says("a", 1), kLength, usage(1), std::string(kDone)});
  EXPECT_EQ(twice.n_lost(), -1);
  EXPECT_FALSE(twice.fault().empty());
}

TEST(StreamCheck, takes_the_usage_for_the_count_where_there_are_no_ids) {
  const std::string text = choice(R"("content":"ab")");
  const StreamCheck good = checked({kRole, text, kLength, usage(2), std::string(kDone)}, {.is_chat = true});
  EXPECT_EQ(good.fault(), "");
  EXPECT_EQ(good.n_tokens(), 2);
  const StreamCheck bad = checked({kRole, text, text, text, kLength, usage(1), std::string(kDone)}, {.is_chat = true});
  EXPECT_TRUE(bad.fault().starts_with("3 frames with text for 1 tokens")) << bad.fault();
}

TEST(StreamCheck, says_what_is_wrong_with_the_order_of_frames) {
  const std::vector<std::pair<std::vector<std::string>, std::string_view>> cases = {
      {{says("a", 1)}, "text before the role"},
      {{kRole, kRole}, "the role twice"},
      {{kRole, usage(1)}, "the usage comes before the finish reason"},
      {{kRole, kLength, says("a", 1)}, "a choice after its finish reason"},
      {{kRole, kLength, std::string(kDone)}, "[DONE] comes before the finish reason or the usage"},
      {{kRole, kLength, usage(0)}, "the stream ended before [DONE]"},
      {{kRole, kLength, usage(0), std::string(kDone), kRole}, "after [DONE] comes"},
      {{kRole, "event: x\n\n"}, "no event of one data line"},
      {{kRole, R"(data: {"error":{"message":"no"}})"
               "\n\n"},
       "error "},
      {{kRole, R"(data: {"id":"c-2","object":"chat.completion.chunk","model":"demo","choices":[]})"
               "\n\n"},
       "a frame of another id or model"},
  };
  for (const auto& [events, fault] : cases) {
    const StreamCheck check = checked(events);
    EXPECT_TRUE(check.fault().starts_with(fault)) << check.fault();
  }
}

TEST(StreamCheck, repeats_what_a_server_refuses_with) {
  const HttpHead refusal{"HTTP/1.1 503 Service Unavailable", 503, "application/json", false};
  StreamCheck check({.is_chat = true});
  check.push(refusal, "fu");
  EXPECT_EQ(check.fault(), "");
  check.push(refusal, "ll");
  check.finish(refusal);
  EXPECT_EQ(check.fault(), "HTTP/1.1 503 Service Unavailable: full");
}

TEST(StreamCheck, wants_a_stream_of_events_in_chunks) {
  HttpHead head = kHead;
  head.is_chunked = false;
  EXPECT_EQ(checked({kRole}, {.is_chat = true}, head).fault(), "the answer is not sent in chunks");
  head = kHead;
  head.content_type = "application/json";
  EXPECT_EQ(checked({kRole}, {.is_chat = true}, head).fault(), "the answer is not an event stream");
}

}  // namespace
}  // namespace baton
