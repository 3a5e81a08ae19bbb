/// Streams as several servers send them (bench/http/completion_stream.h).
#include "bench/http/completion_stream.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// The stream after all of `bytes`, in pieces of `size` bytes.
CompletionStream read(std::string_view bytes, std::size_t size = 1 << 20) {
  CompletionStream stream;
  std::int64_t n_chunks = 0;
  for (std::size_t at = 0; at < bytes.size(); at += size) n_chunks += stream.push(bytes.substr(at, size));
  stream.finish();
  EXPECT_EQ(n_chunks, stream.n_chunks());
  return stream;
}

struct Recorded {
  const char* server;
  std::string_view bytes;
  std::int64_t n_chunks;
  std::string_view text;
  std::optional<std::int64_t> completion_tokens;
};

const Recorded kRecorded[] = {
    {"vLLM, completions",
     R"(data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}

data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}

data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"é","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":null}

data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

)",
     3, " aé", 3},
    {"vLLM, chat",
     R"(data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"lo"},"logprobs":null,"finish_reason":"length"}]}

data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2}}

data: [DONE]

)",
     2, "Hello", 2},
    {"SGLang, completions, the end in a chunk of its own",
     R"(data: {"id":"1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}

data: {"id":"1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length","matched_stop":null}],"usage":null}

data: {"id":"1","object":"text_completion","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1,"prompt_tokens_details":null}}

data: [DONE]

)",
     1, " a", 1},
    {"llama.cpp, usage with the last chunk",
     R"(data: {"choices":[{"text":" a","index":0,"logprobs":null,"finish_reason":null}],"created":1,"model":"m","system_fingerprint":"b1","object":"text_completion","id":"x"}

data: {"choices":[{"text":" b","index":0,"logprobs":null,"finish_reason":null}],"created":1,"model":"m","system_fingerprint":"b1","object":"text_completion","id":"x"}

data: {"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"created":1,"model":"m","object":"text_completion","usage":{"completion_tokens":2,"prompt_tokens":5,"total_tokens":7},"id":"x","timings":{"predicted_n":2}}

data: [DONE]

)",
     2, " a b", 2},
    {"Baton, with token ids: the prompt's first, the end in a chunk of its own",
     R"(data: {"id":"cmpl-1","object":"text_completion","model":"demo","choices":[{"index":0,"text":"","logprobs":null,"prompt_token_ids":[100,200],"finish_reason":null}]}

data: {"id":"cmpl-1","object":"text_completion","model":"demo","choices":[{"index":0,"text":".","logprobs":null,"token_ids":[19],"finish_reason":null,"stop_reason":null}]}

data: {"id":"cmpl-1","object":"text_completion","model":"demo","choices":[{"index":0,"text":"","logprobs":null,"token_ids":[5],"finish_reason":null,"stop_reason":null}]}

data: {"id":"cmpl-1","object":"text_completion","model":"demo","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null}]}

data: {"id":"cmpl-1","object":"text_completion","model":"demo","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}

data: [DONE]

)",
     2, ".", 2},
    {"a reasoning model, role and text in one chunk, no usage, no space after the colon, CRLF",
     "data:{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\"Hm\"}}]}\r\n\r\n"
     ": a comment\r\n\r\n"
     "data:{\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\r\n\r\n",
     2, "Hmok", std::nullopt},
};

TEST(CompletionStream, reads_the_streams_of_several_servers_however_they_are_cut) {
  for (const Recorded& recorded : kRecorded)
    for (const std::size_t size : {std::size_t{1}, std::size_t{33}, std::size_t{1} << 20}) {
      const CompletionStream stream = read(recorded.bytes, size);
      EXPECT_EQ(stream.error(), "") << recorded.server;
      EXPECT_EQ(stream.n_chunks(), recorded.n_chunks) << recorded.server;
      EXPECT_EQ(stream.text(), recorded.text) << recorded.server;
      EXPECT_EQ(stream.completion_tokens(), recorded.completion_tokens) << recorded.server;
    }
  EXPECT_EQ(read(kRecorded[0].bytes).cached_tokens(), 4);
  EXPECT_EQ(read(kRecorded[0].bytes).prompt_tokens(), 5);
  EXPECT_FALSE(read(kRecorded[1].bytes).cached_tokens());
}

TEST(CompletionStream, counts_ids_that_bring_no_text) {
  const CompletionStream stream = read(
      "data: {\"choices\":[{\"text\":\"\",\"token_ids\":[7,8]}]}\n\n"
      "data: {\"choices\":[{\"text\":\"x\",\"token_ids\":[9],\"finish_reason\":\"length\"}]}\n\n");
  EXPECT_EQ(stream.n_chunks(), 2);
  EXPECT_EQ(stream.token_ids(), (std::vector<TokenId>{7, 8, 9}));
}

TEST(CompletionStream, says_why_a_stream_is_no_answer) {
  const std::string text = "data: {\"choices\":[{\"text\":\"x\"}]}\n\n";
  EXPECT_EQ(read(text).error(), "the stream ended without [DONE] or a finish reason");
  EXPECT_EQ(read("data: [DONE]\n\n").error(), "the answer has no token");
  EXPECT_EQ(read(text + "data: {\"error\":{\"message\":\"out of blocks\",\"code\":500}}\n\ndata: [DONE]\n\n").error(),
            "out of blocks");
  EXPECT_EQ(read(text + "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}]}\n\n").error(),
            "the server ended the answer: finish_reason abort");
  EXPECT_NE(read("data: {\"choices\n\n").error(), "");
}

TEST(CompletionStream, finds_the_message_in_the_bodies_of_errors) {
  EXPECT_EQ(message_of_error(R"({"error":{"message":"too long","type":"BadRequestError"}})"), "too long");
  EXPECT_EQ(message_of_error(R"({"object":"error","message":"too long"})"), "too long");
  EXPECT_EQ(message_of_error(R"({"error":"too long"})"), "too long");
  EXPECT_EQ(message_of_error(R"({"detail":"Not Found"})"), "Not Found");
  EXPECT_EQ(message_of_error(R"({"detail":[{"loc":["body"]}]})"), R"([{"loc":["body"]}])");
  EXPECT_EQ(message_of_error("Internal Server Error"), "Internal Server Error");
  EXPECT_EQ(message_of_error(""), "");
}

}  // namespace
}  // namespace baton
