/// Requests of the OpenAI dialect, field by field (server/request/generation.h).
#include "server/request/generation.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr RequestBounds kLimits = {.n_vocab = 1000, .max_logprobs = 20};

json::Value body_of(std::string_view text) {
  auto body = json::parse(text, "the body");
  EXPECT_TRUE(body) << text;
  return body ? *body : json::Value::object();
}

/// A request with the fields of `extra` (`"a": 1, "b": 2`) besides the prompt.
std::string with_prompt(std::string_view extra) {
  return R"({"prompt": "p")" + std::string(extra.empty() ? "" : ", ") + std::string(extra) + "}";
}
std::string with_messages(std::string_view extra) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" + std::string(extra.empty() ? "" : ", ") + std::string(extra) +
         "}";
}

CompletionRequest completion(std::string_view extra, const SamplingDefaults& defaults = {}) {
  auto request = parse_completion_request(body_of(with_prompt(extra)), defaults, kLimits);
  EXPECT_TRUE(request) << extra << (request ? "" : request.error().message);
  return request ? *request : CompletionRequest{};
}
ChatRequest chat(std::string_view extra) {
  auto request = parse_chat_request(body_of(with_messages(extra)), {}, kLimits);
  EXPECT_TRUE(request) << extra << (request ? "" : request.error().message);
  return request ? *request : ChatRequest{};
}

TEST(OpenaiRequest, has_the_defaults_of_the_dialect) {
  const CompletionRequest plain = completion("");
  EXPECT_EQ(plain.generation.sampling.max_tokens, 16);
  EXPECT_EQ(plain.generation.sampling.temperature, 1.0f);
  EXPECT_EQ(plain.generation.sampling.top_p, 1.0f);
  EXPECT_EQ(plain.generation.sampling.top_k, 0);
  EXPECT_EQ(plain.generation.sampling.n_top_logprobs, -1);
  EXPECT_EQ(plain.generation.n, 1);
  EXPECT_TRUE(plain.generation.skip_special_tokens);
  EXPECT_TRUE(plain.add_special_tokens);
  EXPECT_FALSE(plain.generation.is_stream);
  const ChatRequest conversation = chat("");
  EXPECT_FALSE(conversation.generation.sampling.max_tokens);
  EXPECT_TRUE(conversation.add_generation_prompt);
  EXPECT_FALSE(conversation.add_special_tokens);
}

TEST(OpenaiRequest, the_models_longest_answer_is_a_limit_and_the_default_of_chats) {
  const SamplingDefaults defaults = {.min_p = 0.25f, .max_tokens = 100};
  EXPECT_EQ(completion(R"("n": 1)", defaults).generation.sampling.max_tokens, 16);
  EXPECT_EQ(completion(R"("max_tokens": 7)", defaults).generation.sampling.max_tokens, 7);
  EXPECT_EQ(completion(R"("max_tokens": 700)", defaults).generation.sampling.max_tokens, 100);
  EXPECT_EQ(completion(R"("n": 1)", defaults).generation.sampling.min_p, 0.25f);
  EXPECT_EQ(completion(R"("min_p": 0)", defaults).generation.sampling.min_p, 0.0f);
  const auto chat = parse_chat_request(body_of(R"({"messages": [{"role": "user", "content": "a"}]})"), defaults, kLimits);
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->generation.sampling.max_tokens, 100);
}

TEST(OpenaiRequest, takes_the_models_defaults_where_the_request_says_nothing) {
  const SamplingDefaults defaults = {.temperature = 0.6f, .top_p = 0.9f, .top_k = 40, .repetition_penalty = 1.1f};
  const SamplingParams unsaid = completion(R"("temperature": null)", defaults).generation.sampling;
  EXPECT_EQ(unsaid.temperature, 0.6f);
  EXPECT_EQ(unsaid.top_p, 0.9f);
  EXPECT_EQ(unsaid.top_k, 40);
  EXPECT_EQ(unsaid.repetition_penalty, 1.1f);
  const SamplingParams said =
      completion(R"("temperature": 0, "top_p": 1, "top_k": -1, "repetition_penalty": 1)", defaults).generation.sampling;
  EXPECT_EQ(said.temperature, 0.0f);
  EXPECT_EQ(said.top_p, 1.0f);
  EXPECT_EQ(said.top_k, 0);
  EXPECT_EQ(said.repetition_penalty, 1.0f);
}

TEST(OpenaiRequest, takes_a_salt_as_long_as_that_of_vllm) {
  const std::string longest(1024, 's');
  EXPECT_EQ(completion(R"("cache_salt": ")" + longest + '"').generation.cache_salt, longest);
}

TEST(OpenaiRequest, reads_every_field_of_both_endpoints) {
  const GenerationRequest request =
      completion(R"("model": "m", "prefix": "shop", "max_tokens": 7, "n": 3, "stream": true, "seed": -5, "min_tokens": 2,
                    "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "stop": ["a", "b"],
                    "stop_token_ids": [1, 999], "ignore_eos": true, "include_stop_str_in_output": true,
                    "skip_special_tokens": false, "cache_salt": "tenant", "request_id": "r1", "baton_stats": true,
                    "return_token_ids": true, "user": "u", "frobnicate": 1)")
          .generation;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.prefix, "shop");
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(request.sampling.min_tokens, 2);
  EXPECT_EQ(request.sampling.seed, static_cast<std::uint64_t>(-5));
  EXPECT_EQ(request.sampling.stop_ids, (std::vector<TokenId>{1, 999}));
  EXPECT_TRUE(request.sampling.ignore_eos);
  EXPECT_EQ(request.n, 3);
  EXPECT_TRUE(request.is_stream && request.include_usage && request.continuous_usage);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.include_stop);
  EXPECT_FALSE(request.skip_special_tokens);
  EXPECT_EQ(request.cache_salt, "tenant");
  EXPECT_EQ(request.request_id, "r1");
  EXPECT_TRUE(request.wants_stats && request.wants_token_ids);
  EXPECT_EQ(request.unknown_fields, std::vector<std::string>{"frobnicate"});
  EXPECT_EQ(completion(R"("stop": "x")").generation.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(completion(R"("seed": 18446744073709551615)").generation.sampling.seed, 18446744073709551615u);
}

TEST(OpenaiRequest, reads_a_priority_either_way_and_a_deadline_that_lies_ahead) {
  EXPECT_EQ(chat("").generation.priority, 0);
  EXPECT_FALSE(chat(R"("deadline_ms": null)").generation.deadline_ms);
  const GenerationRequest both = chat(R"("priority": -12, "deadline_ms": 1500)").generation;
  EXPECT_EQ(both.priority, -12);
  EXPECT_EQ(both.deadline_ms, 1500);
}

TEST(OpenaiRequest, prefers_the_newer_name_of_the_token_limit) {
  EXPECT_EQ(chat(R"("max_tokens": 5, "max_completion_tokens": 9)").generation.sampling.max_tokens, 9);
  EXPECT_EQ(chat(R"("max_tokens": 5)").generation.sampling.max_tokens, 5);
}

TEST(OpenaiRequest, reads_log_probabilities_as_each_endpoint_spells_them) {
  EXPECT_EQ(chat(R"("logprobs": true)").generation.sampling.n_top_logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs": true, "top_logprobs": 5)").generation.sampling.n_top_logprobs, 5);
  EXPECT_EQ(chat(R"("logprobs": false, "top_logprobs": 0)").generation.sampling.n_top_logprobs, -1);
  EXPECT_EQ(completion(R"("logprobs": 0)").generation.sampling.n_top_logprobs, 0);
  EXPECT_EQ(completion(R"("logprobs": 5)").generation.sampling.n_top_logprobs, 5);
}

TEST(OpenaiRequest, reads_what_is_to_be_said_of_the_prompt) {
  EXPECT_EQ(completion("").generation.sampling.n_prompt_logprobs, -1);
  const GenerationRequest asked = completion(R"("prompt_logprobs": 3)").generation;
  EXPECT_EQ(asked.n_prompt_logprobs, 3);
  EXPECT_EQ(asked.sampling.n_prompt_logprobs, 3);
  EXPECT_FALSE(asked.echoes_logprobs);
  EXPECT_EQ(chat(R"("prompt_logprobs": 0)").generation.sampling.n_prompt_logprobs, 0);
  const GenerationRequest echo = completion(R"("echo": true, "logprobs": 5, "max_tokens": 0, "stream": true)").generation;
  EXPECT_TRUE(echo.echoes_logprobs);
  EXPECT_EQ(echo.sampling.n_prompt_logprobs, 5);
  EXPECT_EQ(echo.n_prompt_logprobs, -1);
  const GenerationRequest both = completion(R"("echo": true, "logprobs": 1, "prompt_logprobs": 4)").generation;
  EXPECT_EQ(both.sampling.n_prompt_logprobs, 4);
  EXPECT_EQ(both.sampling.n_top_logprobs, 1);
}

TEST(OpenaiRequest, takes_a_prompt_in_four_forms) {
  const auto prompts = [](std::string_view prompt) {
    auto request = parse_completion_request(body_of(R"({"prompt": )" + std::string(prompt) + "}"), {}, kLimits);
    EXPECT_TRUE(request) << prompt;
    return request ? request->prompts : std::vector<Prompt>{};
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompts(R"("a")"), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2]"), (std::vector<Prompt>{Ids{1, 2}}));
  EXPECT_EQ(prompts("[[1, 2], [3]]"), (std::vector<Prompt>{Ids{1, 2}, Ids{3}}));
}

TEST(OpenaiRequest, lets_echo_ask_for_no_tokens) {
  const CompletionRequest request = completion(R"("echo": true, "max_tokens": 0)");
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.generation.sampling.max_tokens, 0);
}

TEST(OpenaiRequest, hands_variables_to_the_template) {
  const ChatRequest request = chat(R"("chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low")");
  EXPECT_EQ(json::dump(request.template_variables), R"({"enable_thinking":false,"reasoning_effort":"low"})");
  const auto variables = [](std::string_view fields) { return json::dump(chat(fields).template_variables); };
  EXPECT_EQ(variables(R"("reasoning_effort": "none")"), R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(variables(R"("reasoning_effort": "high")"), R"({"reasoning_effort":"high","enable_thinking":true})");
  EXPECT_EQ(variables(R"("reasoning_effort": null)"), "{}");
}

TEST(OpenaiRequest, reads_tools_and_whether_reasoning_is_shown) {
  const ChatRequest request = chat(R"("tools": [{"type": "function", "function": {"name": "f"}}], "include_reasoning": false)");
  ASSERT_TRUE(request.tools.tools);
  EXPECT_EQ((*request.tools.tools)[0].name, "f");
  EXPECT_FALSE(request.includes_reasoning);
  EXPECT_TRUE(request.generation.unknown_fields.empty());
  EXPECT_FALSE(chat("").tools.tools);
  EXPECT_TRUE(chat("").includes_reasoning);
}

struct BadField {
  std::string_view fields;
  std::string_view param;
  std::string_view message;  ///< empty: any
};

constexpr BadField kBadInBoth[] = {
    {R"("n": 0)", "n", "'n' must be from 1 to 128, not 0"},
    {R"("n": 1000000)", "n", ""},
    {R"("n": true)", "n", ""},
    {R"("max_tokens": 0)", "max_tokens", "'max_tokens' must be at least 1, not 0"},
    {R"("max_tokens": -1)", "max_tokens", ""},
    {R"("max_tokens": 99999999999999)", "max_tokens", ""},
    {R"("max_tokens": "5")", "max_tokens", "'max_tokens' must be an integer, not a string"},
    {R"("max_completion_tokens": 0)", "max_completion_tokens", ""},
    {R"("max_tokens": 5, "min_tokens": 6)", "min_tokens", "'min_tokens' must be at most max_tokens, 5, not 6"},
    {R"("stream": "yes")", "stream", "'stream' must be true or false, not a string"},
    {R"("stream_options": {"include_usage": true})", "stream_options", ""},
    {R"("stream": true, "stream_options": {"include_usage": 1})", "include_usage", ""},
    {R"("stop": "")", "stop", "'stop' must not hold an empty string"},
    {R"("stop": [1])", "stop[0]", ""},
    {R"("stop": {})", "stop", ""},
    {R"("stop_token_ids": [1000])", "stop_token_ids", "'stop_token_ids' must hold token ids from 0 to 999, not 1000"},
    {R"("stop_token_ids": [-1])", "stop_token_ids", ""},
    {R"("stop_token_ids": ["a"])", "stop_token_ids", ""},
    {R"("model": 5)", "model", ""},
    {R"("prefix": ["shop"])", "prefix", ""},
    {R"("cache_salt": "")", "cache_salt", "'cache_salt' must have 1 to 1024 bytes, not 0"},
    {R"("request_id": "a\r\nX-Evil: 1")", "request_id", ""},
    {R"("request_id": "")", "request_id", ""},
    {R"("logprobs": "yes")", "logprobs", ""},
    {R"("prompt_logprobs": 21)", "prompt_logprobs", "'prompt_logprobs' must be from 0 to 20, not 21"},
    {R"("prompt_logprobs": -1)", "prompt_logprobs", ""},
    {R"("prompt_logprobs": 1, "stream": true)", "prompt_logprobs", "'prompt_logprobs' needs 'stream' to be false"},
    {R"("priority": "high")", "priority", ""},
    {R"("deadline_ms": 0)", "deadline_ms", ""},
    {R"("functions": [{}])", "functions",
     "'functions' is not supported by this server; the value accepted is []; 'tools' replaces it"},
    {R"("tools": 1)", "tools", ""},
};

template <class Parse>
void expect_refused(const BadField& bad, const std::string& text, Parse parse) {
  const auto request = parse(body_of(text), SamplingDefaults{}, kLimits);
  ASSERT_FALSE(request) << text;
  EXPECT_EQ(request.error().code, ErrorCode::invalid_request) << text;
  EXPECT_EQ(request.error().param, bad.param) << text << ": " << request.error().message;
  EXPECT_NE(request.error().message.find("'"), std::string::npos) << text;
  if (!bad.message.empty()) {
    EXPECT_EQ(request.error().message, bad.message);
  }
}

TEST(OpenaiRequest, names_the_field_of_a_wrong_type_or_an_absurd_value) {
  for (const BadField& bad : kBadInBoth) {
    expect_refused(bad, with_prompt(bad.fields), parse_completion_request);
    expect_refused(bad, with_messages(bad.fields), parse_chat_request);
  }
}

TEST(OpenaiRequest, names_what_is_wrong_with_a_prompt) {
  const BadField cases[] = {
      {R"({})", "prompt", "'prompt' is missing"},
      {R"({"prompt": null})", "prompt", ""},
      {R"({"prompt": []})", "prompt", ""},
      {R"({"prompt": {}})", "prompt", ""},
      {R"({"prompt": [1, "a"]})", "prompt", "'prompt' must hold token ids from 0 to 999, not a string"},
      {R"({"prompt": [1, 1000]})", "prompt", ""},
      {R"({"prompt": ["a", 1]})", "prompt[1]", ""},
      {R"({"prompt": [[1], [1.5]]})", "prompt[1]", ""},
      {R"({"prompt": "p", "logprobs": true})", "logprobs", ""},
      {R"({"prompt": "p", "logprobs": 21})", "logprobs", "'logprobs' must be from 0 to 20, not 21"},
      {R"({"prompt": ["a","b","c","d","e","f","g","h","i"], "n": 128})", "prompt", ""},
  };
  for (const BadField& bad : cases) expect_refused(bad, std::string(bad.fields), parse_completion_request);
}

TEST(OpenaiRequest, names_what_is_wrong_with_the_messages) {
  const BadField cases[] = {
      {R"({})", "messages", "'messages' is missing"},
      {R"({"messages": []})", "messages", "'messages' must hold at least one message"},
      {R"({"messages": "hi"})", "messages", "'messages' must be a list of messages, not a string"},
      {R"({"messages": ["hi"]})", "messages[0]", ""},
      {R"({"messages": [{"content": "hi"}]})", "messages[0].role", "'messages[0].role' is missing"},
      {R"({"messages": [{"role": 1, "content": "hi"}]})", "messages[0].role", ""},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content", ""},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content",
       "'messages[0].content' must be a string or a list of parts, not an integer"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "messages[0].content[0].type",
       "'messages[0].content[0].type' is \"image_url\"; this model reads \"text\" only"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages[0].content[0].text", ""},
      {R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 3})", "top_logprobs", ""},
      {R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 21})", "top_logprobs", ""},
      {R"({"messages": [{"role": "user", "content": "a"}], "logprobs": 3})", "logprobs", ""},
      {R"({"messages": [{"role": "user", "content": "a"}], "echo": true})", "echo", ""},
      {R"({"messages": [{"role": "user", "content": "a"}], "continue_final_message": true})", "continue_final_message", ""},
      {R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": []})", "chat_template_kwargs", ""},
      {R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "very"})", "reasoning_effort",
       "'reasoning_effort' must be one of none, minimal, low, medium, high, xhigh, max, not \"very\""},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", "tools[0].function", ""},
  };
  for (const BadField& bad : cases) expect_refused(bad, std::string(bad.fields), parse_chat_request);
}

TEST(OpenaiRequest, refuses_a_body_that_is_not_an_object_or_has_absurdly_many_fields) {
  EXPECT_EQ(parse_chat_request(body_of("[]"), {}, kLimits).error().message,
            "the request body must be a JSON object, not a list");
  json::Value body;
  for (int i = 0; i < 1001; ++i) body["f" + std::to_string(i)] = i;
  EXPECT_FALSE(parse_completion_request(body, {}, kLimits));
}

}  // namespace
}  // namespace baton
