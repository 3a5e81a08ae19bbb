/// The JSON of an answer's choices (server/dialects/openai/frames.h). Whole answers: tests/server/answer/answer_test.cpp.
#include "server/dialects/openai/frames.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "support/tool_index.h"

namespace baton {
namespace {

Event scored_event_of(std::string_view text) {
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
  choice().take(scored_event_of("Hi"));
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
    choice().take(scored_event_of(text));
    const std::string frame = kept.choice_frames(0, /*is_last=*/false);
    EXPECT_EQ(OpenaiWriter(content_, tokenizer_).choice_frames(0, /*is_last=*/false), frame);
    EXPECT_EQ(bodies(frame)[0]["choices"][0]["text"], text);
  }
}

TEST_F(OpenaiFrames, of_completions_continue_where_the_log_probabilities_of_the_last_one_ended) {
  content_.request.is_stream = true;
  content_.request.sampling.n_top_logprobs = 0;
  OpenaiWriter frames = writer(/*is_chat=*/false);
  choice().take(scored_event_of("ab"));
  EXPECT_EQ(bodies(frames.choice_frames(0, false))[0]["choices"][0]["logprobs"]["text_offset"], parsed("[0,1]"));
  choice().clear();
  choice().take(scored_event_of("c"));
  EXPECT_EQ(bodies(frames.choice_frames(0, false))[0]["choices"][0]["logprobs"]["text_offset"], parsed("[2]"));
}

TEST_F(OpenaiFrames, a_response_holds_the_whole_text_and_the_usage) {
  OpenaiWriter response = writer(/*is_chat=*/true);
  choice().take(scored_event_of("Hi"));
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
  choice().take(scored_event_of(text));
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
  const std::string frames = writer(/*is_chat=*/true).error_frames(500, "no", {});
  EXPECT_TRUE(frames.ends_with("}\n\ndata: [DONE]\n\n")) << frames;
  EXPECT_EQ(bodies(frames.substr(0, frames.find("data: [DONE]")))[0]["error"]["message"], "no");
}

/// A chat whose answer may reason and call the tool f.
class FramesOfMessage : public OpenaiFrames {
 protected:
  FramesOfMessage() {
    content_.request.reading.format = &format_;
    content_.request.reading.tools = testing::index_of({{.name = "f"}});
  }
  const parsers::MessageFormat format_ = parsers::MessageFormat::make("hermes", "qwen3", "").value();
};

constexpr std::string_view kCallOfF = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

TEST_F(FramesOfMessage, a_response_has_calls_and_no_content) {
  OpenaiWriter response = writer(/*is_chat=*/true);
  choice().take(scored_event_of(kCallOfF));
  choice().end(FinishReason::stop, {});
  json::Value body = parsed(whole_body(response));
  json::Value& call = body["choices"][0]["message"]["tool_calls"][0];
  EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
  call["id"] = "x";
  EXPECT_EQ(json::dump(body["choices"][0]["message"]),
            R"({"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"x","type":"function",)"
            R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]})");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(FramesOfMessage, a_response_has_reasoning_under_both_names) {
  OpenaiWriter response = writer(/*is_chat=*/true);
  choice().take(scored_event_of("<think>why</think>Hi"));
  choice().end(FinishReason::stop, {});
  const json::Value body = parsed(whole_body(response));
  EXPECT_EQ(json::dump(body["choices"][0]["message"]),
            R"({"role":"assistant","content":"Hi","refusal":null,"reasoning_content":"why","reasoning":"why"})");
  EXPECT_GT(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST_F(FramesOfMessage, of_a_stream_have_the_name_once_and_then_arguments) {
  content_.request.is_stream = true;
  OpenaiWriter frames = writer(/*is_chat=*/true);
  std::string sent;
  for (const char byte : "<think>why</think>Hi" + std::string(kCallOfF)) {
    choice().take(scored_event_of(std::string_view(&byte, 1)));
    sent += frames.choice_frames(0, /*is_last=*/false);
    choice().clear();
  }
  choice().end(FinishReason::stop, {});
  sent += frames.choice_frames(0, /*is_last=*/true);
  const auto all = bodies(sent);
  std::string reasoning, again, content, arguments;
  int n_names = 0;
  EXPECT_EQ(all.front()["choices"][0]["delta"], parsed(R"({"role":"assistant","content":""})"));
  for (const json::Value& frame : all) {
    const json::Value& delta = frame["choices"][0]["delta"];
    reasoning += delta.value("reasoning_content", "");
    again += delta.value("reasoning", "");
    content += delta.value("content", "");
    if (!delta.contains("tool_calls")) continue;
    ASSERT_EQ(delta.size(), 1u);
    const json::Value& call = delta["tool_calls"][0];
    EXPECT_EQ(call["index"], 0);
    const bool is_new = call.contains("id");
    EXPECT_EQ(is_new, call.contains("type"));
    EXPECT_EQ(is_new, call["function"].contains("name"));
    n_names += is_new;
    EXPECT_TRUE(!is_new || call["function"]["arguments"] == "");
    arguments += call["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(reasoning, "why");
  EXPECT_EQ(again, "why");
  EXPECT_EQ(content, "Hi");
  EXPECT_EQ(arguments, R"({"a": 1})");
  EXPECT_EQ(n_names, 1);
  EXPECT_EQ(all.back()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(all.back()["choices"][0]["delta"], json::Value::object());
}

constexpr std::string_view kPatch =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"input\": \"a \\\"b\\\"\\n\\u00e9\"}}\n</tool_call>";

TEST_F(FramesOfMessage, of_a_custom_tool_have_a_text_as_input) {
  content_.request.reading.custom = std::make_shared<const std::set<std::string>>(std::set<std::string>{"f"});
  OpenaiWriter response = writer(/*is_chat=*/true);
  choice().take(scored_event_of(kPatch));
  choice().end(FinishReason::stop, {});
  const json::Value call = parsed(whole_body(response))["choices"][0]["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "custom");
  EXPECT_EQ(json::dump(call["custom"]), R"({"name":"f","input":"a \"b\"\né"})");

  content_.request.is_stream = true;
  for (const std::string_view text : {kPatch, kCallOfF}) {
    OpenaiWriter frames = writer(/*is_chat=*/true);
    std::string sent, input;
    for (const char byte : text) {
      choice().take(scored_event_of(std::string_view(&byte, 1)));
      sent += frames.choice_frames(0, /*is_last=*/false);
      choice().clear();
    }
    choice().end(FinishReason::stop, {});
    sent += frames.choice_frames(0, /*is_last=*/true);
    int n_names = 0;
    for (const json::Value& frame : bodies(sent)) {
      const json::Value& delta = frame["choices"][0]["delta"];
      if (!delta.contains("tool_calls")) continue;
      const json::Value& piece = delta["tool_calls"][0];
      EXPECT_FALSE(piece.contains("function"));
      n_names += piece["custom"].contains("name");
      input += piece["custom"]["input"].get<std::string>();
    }
    EXPECT_EQ(n_names, 1);
    EXPECT_EQ(input, text == kPatch ? "a \"b\"\né" : R"({"a": 1})") << "what is no text of a custom tool is given as it is";
  }
}

TEST_F(FramesOfMessage, of_a_stream_show_each_token_once) {
  content_.request.is_stream = true;
  content_.request.wants_token_ids = true;
  content_.request.sampling.n_top_logprobs = 0;
  OpenaiWriter frames = writer(/*is_chat=*/true);
  choice().take(scored_event_of("<think>why</think>Hi" + std::string(kCallOfF)));
  std::size_t n_ids = 0, n_logprobs = 0, n_frames = 0;
  for (const json::Value& frame : bodies(frames.choice_frames(0, /*is_last=*/false))) {
    const json::Value& choice = frame["choices"][0];
    if (choice.contains("prompt_token_ids")) continue;
    ++n_frames;
    n_ids += choice["token_ids"].size();
    if (!choice["logprobs"].is_null()) n_logprobs += choice["logprobs"]["content"].size();
  }
  EXPECT_EQ(n_frames, 4u) << "reasoning, content, the call, its arguments";
  EXPECT_EQ(n_ids, 20 + kCallOfF.size());
  EXPECT_EQ(n_logprobs, n_ids);
}

/// The value with types in place of its texts and numbers.
json::Value shape_of(const json::Value& value) {
  if (value.is_object()) {
    json::Value shape = json::Value::object();
    for (const auto& [key, member] : value.items()) shape[key] = shape_of(member);
    return shape;
  }
  if (!value.is_array()) return std::string(json::describe_type(value));
  json::Value shape = json::Value::array();
  for (const json::Value& element : value) shape.push_back(shape_of(element));
  return shape;
}

TEST_F(FramesOfMessage, have_the_shapes_of_recorded_ones) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set: no recorded answer is compared";
  const std::filesystem::path recorded = std::filesystem::path(data) / "openai-api/recorded";
  std::set<std::string> expected;
  std::ifstream file(recorded / "deepseek__deepseek-tool-call.chunks.txt");
  ASSERT_TRUE(file) << recorded;
  for (std::string line; std::getline(file, line);)
    if (const json::Value chunk = parsed(line); chunk["choices"][0]["delta"].contains("tool_calls"))
      expected.insert(json::dump(shape_of(chunk["choices"][0]["delta"])));
  ASSERT_EQ(expected.size(), 2u) << "a call's name, and its arguments";

  content_.request.is_stream = true;
  OpenaiWriter frames = writer(/*is_chat=*/true);
  std::set<std::string> shown;
  for (const char byte : kCallOfF) {
    choice().take(scored_event_of(std::string_view(&byte, 1)));
    for (const json::Value& frame : bodies(frames.choice_frames(0, /*is_last=*/false)))
      if (frame["choices"][0]["delta"].contains("tool_calls")) shown.insert(json::dump(shape_of(frame["choices"][0]["delta"])));
    choice().clear();
  }
  EXPECT_EQ(shown, expected);

  content_.request.is_stream = false;
  OpenaiWriter response = writer(/*is_chat=*/true);
  choice().take(scored_event_of(kCallOfF));
  choice().end(FinishReason::stop, {});
  json::Value own = parsed(whole_body(response))["choices"][0];
  std::ifstream whole(recorded / "groq__groq-tool-call.json");
  const json::Value theirs = parsed(std::string(std::istreambuf_iterator<char>(whole), {}))["choices"][0];
  EXPECT_EQ(json::dump(shape_of(own["message"]["tool_calls"])), json::dump(shape_of(theirs["message"]["tool_calls"])));
  EXPECT_EQ(own["finish_reason"], theirs["finish_reason"]);
}

}  // namespace
}  // namespace baton
