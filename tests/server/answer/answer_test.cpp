/// Responses and frames made from events (server/answer/answer.h), as exact texts.
#include "server/answer/answer.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/openai/frames.h"

namespace baton {
namespace {

/// Events of one sequence whose text is `text`, one byte per token.
Event indexed_event_of(std::string_view text, std::int32_t index = 0) {
  Event event;
  event.index = index;
  for (const char byte : text) event.tokens.push_back({static_cast<unsigned char>(byte), -0.5f, {}});
  return event;
}
Event ends(Event event, FinishReason reason, std::int32_t completion_tokens, std::optional<TokenId> stop_id = {}) {
  event.finished = reason;
  if (stop_id) event.stop_token = TokenOutput{*stop_id, -0.125f, {}};
  event.stats.prompt_tokens = 10;
  event.stats.cached_tokens = 6;
  event.stats.completion_tokens = completion_tokens;
  return event;
}

std::vector<TokenId> ten_tokens() { return std::vector<TokenId>(10, 65); }

class OpenaiAnswer : public ::testing::Test {
 protected:
  Answer chat(GenerationRequest request) {
    return Answer({true, "chatcmpl-1", 1700, "demo", "baton-0"}, std::move(request), {{ten_tokens(), {}}}, tokenizer_,
                  OpenaiWriter::make);
  }
  Answer completion(GenerationRequest request, std::vector<AnswerPrompt> prompts = {{ten_tokens(), {}}}) {
    return Answer({false, "cmpl-1", 1700, "demo", "baton-0"}, std::move(request), std::move(prompts), tokenizer_,
                  OpenaiWriter::make);
  }
  const Tokenizer tokenizer_ = byte_tokenizer();
};

constexpr std::string_view kChatHead =
    R"({"id":"chatcmpl-1","object":"chat.completion","created":1700,"model":"demo","system_fingerprint":"baton-0",)";

/// The frame of one chat choice.
std::string chat_frame(std::string_view choice, std::string_view rest = "") {
  return "data: "
         R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700,"model":"demo",)"
         R"("system_fingerprint":"baton-0","choices":[)" +
         std::string(choice) + "]" + std::string(rest) + "}\n\n";
}
std::string completion_frame(std::string_view choice) {
  return "data: "
         R"({"id":"cmpl-1","object":"text_completion","created":1700,"model":"demo",)"
         R"("system_fingerprint":"baton-0","choices":[)" +
         std::string(choice) + "]}\n\n";
}
constexpr std::string_view kRole =
    R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";

TEST_F(OpenaiAnswer, gives_one_chat_response_with_usage_and_cached_tokens) {
  Answer answer = chat({});
  answer.take(0, indexed_event_of("Hel"));
  EXPECT_FALSE(answer.is_done());
  answer.take(0, ends(indexed_event_of("lo"), FinishReason::stop, 6, kEndToken));
  ASSERT_TRUE(answer.is_done());
  const HttpResponse response = answer.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body,
            std::string(kChatHead) +
                R"("choices":[{"index":0,"message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,)"
                R"("finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":10,"completion_tokens":6,)"
                R"("total_tokens":16,"prompt_tokens_details":{"cached_tokens":6}}})");
}

TEST_F(OpenaiAnswer, tells_the_log_of_all_its_sequences_in_one_line) {
  GenerationRequest request;
  request.n = 2;
  Answer answer = completion(request);
  Event first = ends(indexed_event_of("lo"), FinishReason::stop, 3, kEndToken);
  first.stats.queue_ms = 1;
  first.stats.prefill_ms = 2.5;
  answer.take(0, first);
  EXPECT_NE(answer.log_line().find("finish_reason=stop|open"), std::string::npos) << answer.log_line();
  Event second = ends(indexed_event_of("l", 1), FinishReason::length, 1);
  second.stats.queue_ms = 4;
  second.stats.n_preemptions = 1;
  answer.take(0, second);
  EXPECT_EQ(answer.log_line(),
            "id=cmpl-1 sequences=2 prompt_tokens=10 cached_tokens=6 completion_tokens=4 finish_reason=stop|length queue_ms=4.0 "
            "first_token_ms=4.0 preemptions=1");
  request.prompt_cache_key = "agents of\n\"bank\"";
  EXPECT_TRUE(completion(request).log_line().ends_with(R"( prompt_cache_key="agents of\n\"bank\"")"))
      << completion(request).log_line();
}

TEST_F(OpenaiAnswer, says_that_a_deadline_ended_it) {
  Answer answer = completion({});
  answer.take(0, ends(indexed_event_of("lo"), FinishReason::deadline, 2));
  ASSERT_TRUE(answer.is_done());
  const HttpResponse response = answer.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find(R"("text":"lo","logprobs":null,"finish_reason":"abort","stop_reason":"deadline")"),
            std::string::npos)
      << response.body;
}

TEST_F(OpenaiAnswer, gives_one_completion_response) {
  Answer answer = completion({});
  answer.take(0, ends(indexed_event_of("abc"), FinishReason::length, 3));
  EXPECT_EQ(
      answer.response().body,
      R"({"id":"cmpl-1","object":"text_completion","created":1700,"model":"demo","system_fingerprint":"baton-0",)"
      R"("choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"length","stop_reason":null}],)"
      R"("usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":6}}})");
}

TEST_F(OpenaiAnswer, streams_the_role_the_text_the_reason_and_done) {
  GenerationRequest request;
  request.is_stream = true;
  Answer answer = chat(request);
  EXPECT_EQ(answer.take(0, indexed_event_of("Hi")).frames,
            chat_frame(kRole) +
                chat_frame(R"({"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null,"stop_reason":null})"));
  EXPECT_EQ(answer.take(0, ends(indexed_event_of("!"), FinishReason::stop, 4, kEndToken)).frames,
            chat_frame(R"({"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":null,"stop_reason":null})") +
                chat_frame(R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null})") +
                "data: [DONE]\n\n");
  EXPECT_TRUE(answer.is_done());
}

TEST_F(OpenaiAnswer, escapes_each_text_between_what_its_frames_have_in_common) {
  GenerationRequest request;
  request.is_stream = true;
  request.n = 2;
  // Names that contain the text by which the frame writer finds the place of a choice's text.
  Answer answer({true, "chatcmpl-\x01", 1700, "\x01", "\\u0001\""}, request, {{ten_tokens(), {}}}, tokenizer_,
                OpenaiWriter::make);
  answer.take(0, indexed_event_of("a"));
  for (const std::int32_t index : {0, 1, 0}) {
    for (const std::string_view text : {"a\"b\\\n", "\x01", "", "plain"}) {
      const std::string frames = answer.take(0, indexed_event_of(text, index)).frames;
      if (text.empty()) {
        EXPECT_EQ(frames, "");
        continue;
      }
      const std::size_t first_end = frames.find("\n\n") + 2;  // the role comes before a choice's first text
      const std::string last = frames.substr(first_end == frames.size() ? 0 : first_end);
      ASSERT_TRUE(last.starts_with("data: ") && last.ends_with("\n\n")) << last;
      const json::Value frame = parsed(last.substr(6));
      EXPECT_EQ(frame["id"], "chatcmpl-\x01");
      EXPECT_EQ(frame["model"], "\x01");
      EXPECT_EQ(frame["system_fingerprint"], "\\u0001\"");
      EXPECT_EQ(frame["choices"][0]["index"], index);
      EXPECT_EQ(frame["choices"][0]["delta"], parsed("{\"content\":" + json::dump(text) + "}"));
      EXPECT_TRUE(frame["choices"][0]["finish_reason"].is_null());
    }
  }
}

TEST_F(OpenaiAnswer, streams_the_usage_in_a_frame_without_choices) {
  GenerationRequest request;
  request.is_stream = true;
  request.include_usage = true;
  Answer answer = chat(request);
  const std::string frames = answer.take(0, ends(indexed_event_of("x"), FinishReason::length, 1)).frames;
  EXPECT_EQ(
      frames,
      chat_frame(kRole, R"(,"usage":null)") +
          chat_frame(R"({"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null,"stop_reason":null})",
                     R"(,"usage":null)") +
          chat_frame(R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length","stop_reason":null})",
                     R"(,"usage":null)") +
          chat_frame(
              "",
              R"(,"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":6}})") +
          "data: [DONE]\n\n");
}

TEST_F(OpenaiAnswer, shows_the_usage_on_every_frame_when_asked) {
  GenerationRequest request;
  request.is_stream = true;
  request.include_usage = true;
  request.continuous_usage = true;
  Answer answer = chat(request);
  EXPECT_NE(answer.take(0, indexed_event_of("ab"))
                .frames.find(R"("usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12)"),
            std::string::npos);
}

TEST_F(OpenaiAnswer, streams_completions_without_a_role) {
  GenerationRequest request;
  request.is_stream = true;
  Answer answer = completion(request);
  EXPECT_EQ(answer.take(0, indexed_event_of("a")).frames,
            completion_frame(R"({"index":0,"text":"a","logprobs":null,"finish_reason":null,"stop_reason":null})"));
  EXPECT_EQ(answer.take(0, ends(indexed_event_of(""), FinishReason::length, 1)).frames,
            completion_frame(R"({"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null})") +
                "data: [DONE]\n\n");
}

TEST_F(OpenaiAnswer, ends_at_a_stop_string_that_tokens_cut_and_says_which) {
  GenerationRequest request;
  request.stop = {"END"};
  Answer answer = chat(request);
  EXPECT_FALSE(answer.take(0, indexed_event_of("one E")).has_met_stop);
  EXPECT_TRUE(answer.take(0, indexed_event_of("ND two")).has_met_stop);
  ASSERT_TRUE(answer.is_done());
  EXPECT_TRUE(answer.take(0, indexed_event_of("late")).frames.empty());
  const json::Value body = parsed(answer.response().body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "one ");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["stop_reason"], "END");
  EXPECT_EQ(body["usage"]["completion_tokens"], 7);
}

TEST_F(OpenaiAnswer, needs_not_tell_the_engine_of_a_stop_string_in_the_last_event) {
  GenerationRequest request;
  request.stop = {"b"};
  Answer answer = chat(request);
  EXPECT_FALSE(answer.take(0, ends(indexed_event_of("ab"), FinishReason::length, 2)).has_met_stop);
  EXPECT_EQ(parsed(answer.response().body)["choices"][0]["stop_reason"], "b");
}

TEST_F(OpenaiAnswer, gives_back_held_text_when_the_sequence_ends_without_a_stop_string) {
  GenerationRequest request;
  request.stop = {"END"};
  request.is_stream = true;
  Answer answer = completion(request);
  EXPECT_EQ(answer.take(0, indexed_event_of("E")).frames, "");
  EXPECT_NE(answer.take(0, ends(indexed_event_of("N"), FinishReason::length, 2)).frames.find(R"("text":"EN")"),
            std::string::npos);
}

TEST_F(OpenaiAnswer, never_streams_half_a_character) {
  GenerationRequest request;
  request.is_stream = true;
  Answer answer = completion(request);
  EXPECT_EQ(answer.take(0, indexed_event_of("\xC3")).frames, "");
  EXPECT_NE(answer.take(0, indexed_event_of("\xA9")).frames.find("\"text\":\"\xC3\xA9\""), std::string::npos);
}

TEST(OpenaiAnswerText, continues_from_the_prompt_so_that_its_first_word_keeps_its_space) {
  auto tokenizer = Tokenizer::from_json(json::dump(test::byte_fallback_tokenizer()), "");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto cat = tokenizer->encode("the", false);
  Answer answer({false, "cmpl-1", 1700, "demo", "baton-0"}, {}, {{cat, {}}}, *tokenizer, OpenaiWriter::make);
  Event event;
  for (const TokenId id : cat) event.tokens.push_back({id, {}, {}});
  answer.take(0, ends(std::move(event), FinishReason::length, 1));
  EXPECT_EQ(parsed(answer.response().body)["choices"][0]["text"], " the");
}

TEST_F(OpenaiAnswer, gives_the_stop_token_that_was_asked_for_as_the_reason) {
  GenerationRequest request;
  request.sampling.stop_ids = {65};
  Answer answer = chat(request);
  answer.take(0, ends(indexed_event_of("x"), FinishReason::stop, 2, 65));
  EXPECT_EQ(parsed(answer.response().body)["choices"][0]["stop_reason"], 65);
  EXPECT_EQ(parsed(answer.response().body)["choices"][0]["message"]["content"], "x");
  request.include_stop = true;
  Answer included = chat(request);
  included.take(0, ends(indexed_event_of("x"), FinishReason::stop, 2, 65));
  EXPECT_EQ(parsed(included.response().body)["choices"][0]["message"]["content"], "xA");
}

TEST_F(OpenaiAnswer, numbers_choices_by_prompt_and_sequence_and_counts_each_prompt_once) {
  GenerationRequest request;
  request.n = 2;
  request.wants_stats = true;
  Answer answer = completion(request, {{std::vector<TokenId>(10, 65), "P"}, {std::vector<TokenId>(20, 65), "Q"}});
  for (std::size_t prompt = 0; prompt < 2; ++prompt) {
    for (std::int32_t index = 0; index < 2; ++index) {
      Event event = ends(indexed_event_of(std::to_string(prompt) + std::to_string(index), index), FinishReason::length, 2);
      event.stats.replayed_tokens = 5;
      event.stats.relayed_tokens = 100;
      event.stats.kv_bytes_requested = 1000;
      event.stats.kv_bytes_saved = 10;
      event.stats.largest_group = 1 + index;
      event.stats.queue_ms = 0.5;
      event.stats.draft_tokens = 3;
      event.stats.accepted_tokens = 1;
      answer.take(prompt, event);
    }
  }
  const json::Value body = parsed(answer.response().body);
  ASSERT_EQ(body["choices"].size(), 4u);
  EXPECT_EQ(body["choices"][0]["text"], "P00");
  EXPECT_EQ(body["choices"][3]["text"], "Q11");
  EXPECT_EQ(body["choices"][3]["index"], 3);
  EXPECT_EQ(json::dump(body["usage"]),
            R"({"prompt_tokens":30,"completion_tokens":8,"total_tokens":38,"prompt_tokens_details":{"cached_tokens":12}})");
  EXPECT_EQ(
      json::dump(body["baton"]),
      R"({"cached_tokens":24,"replayed_tokens":20,"relayed_tokens":400,"kv_bytes_requested":4000,"kv_bytes_saved":40,"largest_group":2,)"
      R"("queue_ms":2.0,"prefill_ms":0.0,"draft_tokens":12,"accepted_tokens":4})");
}

TEST_F(OpenaiAnswer, puts_the_stats_into_the_last_frame_only) {
  GenerationRequest request;
  request.is_stream = true;
  request.n = 2;
  request.wants_stats = true;
  Answer answer = chat(request);
  EXPECT_EQ(answer.take(0, ends(indexed_event_of("a", 1), FinishReason::length, 1)).frames.find("\"baton\":"),
            std::string::npos);
  const std::string last = answer.take(0, ends(indexed_event_of("a", 0), FinishReason::length, 1)).frames;
  EXPECT_NE(last.find(R"("finish_reason":"length","stop_reason":null}],"baton":{"cached_tokens":12,)"), std::string::npos)
      << last;
  request.include_usage = true;
  request.n = 1;
  Answer with_usage = chat(request);
  const std::string frames = with_usage.take(0, ends(indexed_event_of("a"), FinishReason::length, 1)).frames;
  EXPECT_NE(frames.find(R"("choices":[],"usage":{"prompt_tokens":10,)"), std::string::npos);
  EXPECT_EQ(frames.find("\"baton\":"), frames.rfind("\"baton\":"));
  EXPECT_GT(frames.find("\"baton\":"), frames.find("\"choices\":[]"));
}

TEST_F(OpenaiAnswer, echoes_the_prompt_even_when_nothing_is_generated) {
  GenerationRequest request;
  Answer answer = completion(request, {{{97, 98, 99}, "abc"}});
  EXPECT_EQ(answer.take_nothing(), "");
  EXPECT_EQ(parsed(answer.response().body)["choices"][0]["text"], "abc");
  EXPECT_EQ(parsed(answer.response().body)["choices"][0]["finish_reason"], "length");
  request.is_stream = true;
  Answer stream = completion(request, {{{97, 98, 99}, "abc"}});
  EXPECT_EQ(stream.take_nothing(),
            completion_frame(R"({"index":0,"text":"abc","logprobs":null,"finish_reason":null,"stop_reason":null})") +
                completion_frame(R"({"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null})") +
                "data: [DONE]\n\n");
}

TEST_F(OpenaiAnswer, echoes_log_probabilities_when_the_prompts_are_complete) {
  GenerationRequest request;
  request.n = 2;
  request.sampling.n_top_logprobs = 1;
  request.echoes_logprobs = true;
  const auto scores = [](TokenId token) {
    Event event;
    event.prompt_scores.push_back({token, -0.25f, {{98, -0.25f}, {65, -3.0f}}, 1});
    return event;
  };
  constexpr std::string_view kWhole =
      R"({"text_offset":[0,1,2,3],"token_logprobs":[null,-0.25,-0.25,-0.5],"tokens":["a","b","c","X"],)"
      R"("top_logprobs":[null,{"b":-0.25},{"b":-0.25,"c":-0.25},{"X":-0.5}]})";
  Answer answer = completion(request, {{{97, 98, 99}, "abc"}});
  answer.take(0, scores(98));
  answer.take(0, ends(indexed_event_of("X", 1), FinishReason::length, 1));
  answer.take(0, scores(99));
  answer.take(0, ends(indexed_event_of("X"), FinishReason::length, 1));
  const json::Value choices = parsed(answer.response().body)["choices"];
  for (const json::Value& choice : choices) {
    EXPECT_EQ(choice["text"], "abcX");
    EXPECT_EQ(json::dump(choice["logprobs"]), kWhole);
  }
  request.is_stream = true;
  Answer stream = completion(request, {{{97, 98, 99}, "abc"}});
  EXPECT_EQ(stream.take(0, scores(98)).frames, "");
  EXPECT_EQ(stream.take(0, indexed_event_of("X", 1)).frames, "") << "it waits for the echo";
  const std::string begun = stream.take(0, scores(99)).frames;
  EXPECT_NE(begun.find(R"("index":0,"text":"abc","logprobs":{"text_offset":[0,1,2],)"), std::string::npos) << begun;
  EXPECT_NE(begun.find(R"("index":1,"text":"abcX","logprobs":)" + std::string(kWhole)), std::string::npos) << begun;
  const std::string next = stream.take(0, indexed_event_of("Y")).frames;
  EXPECT_NE(next.find(R"("index":0,"text":"Y","logprobs":{"text_offset":[3],"token_logprobs":[-0.5],)"), std::string::npos)
      << next;
  Answer cut_off = completion(request, {{{97, 98, 99}, "abc"}});
  EXPECT_NE(cut_off.take(0, ends({}, FinishReason::abort, 0)).frames.find(R"("finish_reason":"abort")"), std::string::npos);
}

TEST_F(OpenaiAnswer, gives_the_stop_token_an_id_and_log_probabilities_but_no_text) {
  GenerationRequest request;
  request.sampling.n_top_logprobs = 0;
  request.wants_token_ids = true;
  constexpr std::string_view kEntry =
      R"({"token":"<|end|>","logprob":-0.125,"bytes":[60,124,101,110,100,124,62],"top_logprobs":[]})";
  Answer conversation = chat(request);
  conversation.take(0, ends(indexed_event_of("A"), FinishReason::stop, 2, kEndToken));
  const json::Value choice = parsed(conversation.response().body)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "A");
  EXPECT_EQ(json::dump(choice["token_ids"]), "[65,260]");
  ASSERT_EQ(choice["logprobs"]["content"].size(), 2u);
  EXPECT_EQ(json::dump(choice["logprobs"]["content"][1]), kEntry);

  request.is_stream = true;
  Answer stream = chat(request);
  stream.take(0, indexed_event_of("A"));
  EXPECT_EQ(stream.take(0, ends({}, FinishReason::stop, 2, kEndToken)).frames,
            chat_frame(R"({"index":0,"delta":{"content":""},"logprobs":{"content":[)" + std::string(kEntry) +
                       R"(],"refusal":null},"token_ids":[260],"finish_reason":null,"stop_reason":null})") +
                chat_frame(R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null})") +
                "data: [DONE]\n\n");
}

TEST_F(OpenaiAnswer, echoes_one_entry_more_than_the_prompt_has_tokens_when_the_first_new_one_ends_it) {
  GenerationRequest request;
  request.sampling.n_top_logprobs = 0;
  request.echoes_logprobs = true;
  Answer answer = completion(request, {{{97, 98}, "ab"}});
  Event event;
  event.prompt_scores.push_back({98, -0.25f, {}, 1});
  answer.take(0, ends(std::move(event), FinishReason::stop, 1, kEndToken));
  const json::Value choice = parsed(answer.response().body)["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(json::dump(choice["logprobs"]["token_logprobs"]), "[null,-0.25,-0.125]");
  EXPECT_EQ(json::dump(choice["logprobs"]["tokens"]), R"(["a","b","<|end|>"])");
}

TEST_F(OpenaiAnswer, lists_prompt_logprobs_in_the_choice_or_the_chat_response) {
  GenerationRequest request;
  request.n_prompt_logprobs = 0;
  Event event = ends(indexed_event_of("X"), FinishReason::length, 1);
  event.prompt_scores.push_back({98, -0.25f, {{97, -0.125f}}, 2});
  constexpr std::string_view kList = R"([null,{"98":{"logprob":-0.25,"rank":2,"decoded_token":"b"}}])";
  Answer plain = completion(request, {{{97, 98}, {}}});
  plain.take(0, event);
  EXPECT_EQ(json::dump(parsed(plain.response().body)["choices"][0]["prompt_logprobs"]), kList);
  Answer conversation = chat(request);
  conversation.take(0, event);
  EXPECT_EQ(json::dump(parsed(conversation.response().body)["prompt_logprobs"]), kList);
}

TEST_F(OpenaiAnswer, shows_token_ids_when_asked) {
  GenerationRequest request;
  request.wants_token_ids = true;
  Answer answer = completion(request, {{{7, 8}, {}}});
  answer.take(0, ends(indexed_event_of("AB"), FinishReason::length, 2));
  const json::Value choice = parsed(answer.response().body)["choices"][0];
  EXPECT_EQ(json::dump(choice["token_ids"]), "[65,66]");
  EXPECT_EQ(json::dump(choice["prompt_token_ids"]), "[7,8]");
}

TEST_F(OpenaiAnswer, an_engine_error_is_a_frame_and_done_in_a_stream_and_500_otherwise) {
  GenerationRequest request;
  Answer whole = chat(request);
  EXPECT_EQ(whole.take(0, ends({}, FinishReason::error, 0)).frames, "") << "it would be sent before the status line";
  EXPECT_TRUE(whole.is_done() && whole.has_failed());
  EXPECT_EQ(whole.response().status, 500);
  request.is_stream = true;
  Answer stream = chat(request);
  const std::string frames = stream.take(0, ends({}, FinishReason::error, 0)).frames;
  EXPECT_TRUE(frames.starts_with(R"(data: {"error":{"message":)")) << frames;
  EXPECT_TRUE(frames.ends_with("\"code\":500}}\n\ndata: [DONE]\n\n")) << frames;
}

TEST_F(OpenaiAnswer, an_abort_says_why_in_a_stream_and_is_503_otherwise) {
  GenerationRequest request;
  Answer whole = chat(request);
  whole.take(0, ends(indexed_event_of("x"), FinishReason::abort, 1));
  EXPECT_EQ(whole.response().status, 503);
  request.is_stream = true;
  Answer stream = chat(request);
  EXPECT_NE(stream.take(0, ends(indexed_event_of("x"), FinishReason::abort, 1))
                .frames.find(R"("finish_reason":"abort","stop_reason":"shutdown")"),
            std::string::npos);
}

TEST_F(OpenaiAnswer, carries_log_probabilities_in_the_shape_of_each_endpoint) {
  GenerationRequest request;
  request.sampling.n_top_logprobs = 0;
  Answer conversation = chat(request);
  conversation.take(0, ends(indexed_event_of("A"), FinishReason::length, 1));
  EXPECT_EQ(json::dump(parsed(conversation.response().body)["choices"][0]["logprobs"]),
            R"({"content":[{"token":"A","logprob":-0.5,"bytes":[65],"top_logprobs":[]}],"refusal":null})");
  Answer plain = completion(request);
  plain.take(0, ends(indexed_event_of("AB"), FinishReason::length, 2));
  EXPECT_EQ(json::dump(parsed(plain.response().body)["choices"][0]["logprobs"]),
            R"({"text_offset":[0,1],"token_logprobs":[-0.5,-0.5],"tokens":["A","B"],"top_logprobs":[{"A":-0.5},{"B":-0.5}]})");
  request.is_stream = true;
  Answer stream = completion(request);
  stream.take(0, indexed_event_of("A"));
  EXPECT_NE(stream.take(0, indexed_event_of("B")).frames.find(R"("logprobs":{"text_offset":[1])"), std::string::npos);
}

}  // namespace
}  // namespace baton
