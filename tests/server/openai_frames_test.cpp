/// The JSON of an answer's choices (server/openai_frames.h). Whole answers: openai_answer_test.
#include "server/openai_frames.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

Event says(std::string_view text) {
  Event event;
  for (const char byte : text) event.tokens.push_back({static_cast<unsigned char>(byte), -0.5f, {}});
  return event;
}

/// One choice of a chat, or of a completion.
class OpenaiFrames : public ::testing::Test {
 protected:
  OpenaiWriter writer(bool is_chat) {
    content_.header = {is_chat, "id", 1700, "demo", "baton-0"};
    content_.prompts = {{{65}, {}}};
    content_.scores.resize(1);
    content_.choices.clear();
    content_.choices.emplace_back(content_.request, content_.prompts[0], tokenizer_);
    return {content_, tokenizer_};
  }
  AnswerChoice& choice() { return content_.choices[0]; }

  const Tokenizer tokenizer_ = byte_tokenizer();
  AnswerContent content_;
};

std::string whole_body(AnswerWriter& writer) {
  std::string body;
  writer.write_response(body).finish();
  return body;
}

/// The bodies of frames, each "data: {...}".
std::vector<json::Value> bodies(std::string_view frames) {
  std::vector<json::Value> found;
  for (std::size_t end; (end = frames.find("\n\n")) != std::string_view::npos; frames.remove_prefix(end + 2)) {
    EXPECT_TRUE(frames.starts_with("data: "));
    found.push_back(parsed(frames.substr(6, end - 6)));
  }
  EXPECT_EQ(frames, "") << "a frame that is not whole";
  return found;
}

TEST_F(OpenaiFrames, begin_with_the_role_and_end_with_the_reason) {
  content_.request.is_stream = true;
  OpenaiWriter frames = writer(/*is_chat=*/true);
  choice().take(says("Hi"));
  const auto begun = bodies(frames.choice_frames(0, /*is_last=*/false));
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(begun[1]["choices"][0]["delta"]["content"], "Hi");
  choice().clear();
  EXPECT_EQ(frames.choice_frames(0, /*is_last=*/false), "") << "there is nothing new";
  choice().end(FinishReason::stop, 7);
  const auto ended = bodies(frames.choice_frames(0, /*is_last=*/true));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(ended[0]["choices"][0]["stop_reason"], 7);
  EXPECT_EQ(frames.last_frames(), "data: [DONE]\n\n");
}

TEST_F(OpenaiFrames, of_text_are_the_same_with_and_without_what_is_kept_of_the_first) {
  content_.request.is_stream = true;
  OpenaiWriter kept = writer(/*is_chat=*/false);
  for (const std::string_view text : {"a", "\"quoted\"\\\n", "\x01", "{}"}) {
    choice().clear();
    choice().take(says(text));
    const std::string frame = kept.choice_frames(0, /*is_last=*/false);
    EXPECT_EQ(OpenaiWriter(content_, tokenizer_).choice_frames(0, /*is_last=*/false), frame);
    EXPECT_EQ(bodies(frame)[0]["choices"][0]["text"], text);
  }
}

TEST_F(OpenaiFrames, of_completions_go_on_where_the_log_probabilities_of_the_last_one_ended) {
  content_.request.is_stream = true;
  content_.request.sampling.n_top_logprobs = 0;
  OpenaiWriter frames = writer(/*is_chat=*/false);
  choice().take(says("ab"));
  EXPECT_EQ(bodies(frames.choice_frames(0, false))[0]["choices"][0]["logprobs"]["text_offset"], parsed("[0,1]"));
  choice().clear();
  choice().take(says("c"));
  EXPECT_EQ(bodies(frames.choice_frames(0, false))[0]["choices"][0]["logprobs"]["text_offset"], parsed("[2]"));
}

TEST_F(OpenaiFrames, a_response_holds_the_whole_text_and_the_usage) {
  OpenaiWriter response = writer(/*is_chat=*/true);
  choice().take(says("Hi"));
  choice().end(FinishReason::stop, "!");
  const json::Value body = parsed(whole_body(response));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"], parsed(R"({"role":"assistant","content":"Hi","refusal":null})"));
  EXPECT_EQ(body["choices"][0]["stop_reason"], "!");
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  EXPECT_EQ(body["usage"]["total_tokens"], 3);
}

TEST_F(OpenaiFrames, a_response_can_be_written_in_steps) {
  content_.request.n_prompt_logprobs = 1;
  content_.request.wants_token_ids = true;
  content_.scores.resize(1);
  for (int i = 0; i < 3000; ++i) content_.scores[0].push_back({65, -1.0f, {{66, -0.5f}}});
  OpenaiWriter response = writer(/*is_chat=*/false);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "\u00e9\"";
  choice().take(says(text));
  choice().end(FinishReason::stop, "!");
  const std::string whole = whole_body(response);
  EXPECT_EQ(parsed(whole)["choices"][0]["text"], text);
  std::string pieces, out;
  std::size_t longest = 0;
  OpenaiWriter again(content_, tokenizer_);
  for (Resumable steps = again.write_response(out); steps.resume(); out.clear()) {
    pieces += out;
    longest = std::max(longest, out.size());
  }
  EXPECT_EQ(pieces + out, whole);
  EXPECT_LT(longest, std::size_t{128} << 10);
  EXPECT_GT(longest, whole.size() / 100);
  const double estimate = static_cast<double>(response.response_bytes());
  EXPECT_GT(estimate, 0.3 * static_cast<double>(whole.size()));
  EXPECT_LT(estimate, 3 * static_cast<double>(whole.size()));
}

TEST_F(OpenaiFrames, an_error_is_a_frame_and_the_end) {
  const std::string frames = writer(/*is_chat=*/true).error_frames(500, "no");
  EXPECT_TRUE(frames.ends_with("}\n\ndata: [DONE]\n\n")) << frames;
  EXPECT_EQ(bodies(frames.substr(0, frames.find("data: [DONE]")))[0]["error"]["message"], "no");
}

}  // namespace
}  // namespace baton
