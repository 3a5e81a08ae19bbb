/// Endpoints over HTTP: request and response texts, with an engine with a small random model (server/routes/routes.h).
#include "server/routes/routes.h"

#include <deque>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/prefixes_held.h"
#include "server/server_fixture.h"

namespace baton {
namespace {

/// One server for all tests of this file.
class Routes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { fixture_ = std::make_unique<ServerFixture>().release(); }
  static void TearDownTestSuite() { delete fixture_; }

  static RawResponse post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return fixture_->post(path, body, headers);
  }
  static RawResponse get(std::string_view path) { return fixture_->get(path); }

  /// The body, with parts that differ between calls replaced.
  static std::string normalized(std::string body) {
    body = std::regex_replace(body, std::regex(R"x("(chatcmpl|cmpl)-[0-9a-f]{32}")x"), "\"$1-ID\"");
    return std::regex_replace(body, std::regex(R"x("created":\d+)x"), "\"created\":TIME");
  }
  static json::Value json_of(const RawResponse& response) { return parsed(response.body); }

  static ServerFixture* fixture_;
};
ServerFixture* Routes::fixture_ = nullptr;

constexpr std::string_view kHi =
    R"("messages": [{"role": "user", "content": "hi"}], "temperature": 0, "ignore_eos": true, "max_tokens": 4)";

std::string with(std::string_view fields, std::string_view more) {
  return "{" + std::string(fields) + ", " + std::string(more) + "}";
}

TEST_F(Routes, answer_a_chat_completion) {
  const RawResponse response = post("/v1/chat/completions", with(kHi, R"("model": "demo", "return_token_ids": true)"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(response.has("Content-Type: application/json"));
  EXPECT_TRUE(response.has("X-Request-Id: chatcmpl-"));
  const json::Value body = json_of(response);
  const std::string content = body["choices"][0]["message"]["content"].get<std::string>();
  EXPECT_FALSE(content.empty());
  EXPECT_EQ(body["choices"][0]["token_ids"].size(), 4u);
  EXPECT_EQ(body["prompt_token_ids"].size(), 19u);  // "[user]hi[assistant]"
  json::Value rest = body;
  rest.erase("prompt_token_ids");
  rest["choices"][0].erase("token_ids");
  rest["choices"][0]["message"]["content"] = "TEXT";
  EXPECT_EQ(
      normalized(json::dump(rest)),
      R"({"id":"chatcmpl-ID","object":"chat.completion","created":TIME,"model":"demo","system_fingerprint":"baton-0.0-test",)"
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"TEXT","refusal":null},"logprobs":null,)"
      R"("finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":19,"completion_tokens":4,"total_tokens":23,)"
      R"("prompt_tokens_details":{"cached_tokens":0}}})");
}

/// The JSON of each frame of a stream, without [DONE], which is checked.
std::vector<json::Value> frames_of(const RawResponse& response) {
  EXPECT_TRUE(response.has("Content-Type: text/event-stream")) << response.head << response.body;
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n")) << response.body;
  std::vector<json::Value> frames;
  std::string_view rest = response.body;
  while (!rest.empty()) {
    const auto end = rest.find("\n\n");
    const std::string_view frame = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    EXPECT_TRUE(frame.starts_with("data: ")) << frame;
    if (frame != "data: [DONE]") frames.push_back(parsed(frame.substr(6)));
  }
  return frames;
}

TEST_F(Routes, stream_the_same_text_that_they_answer_in_one_piece) {
  const std::string whole =
      json_of(post("/v1/chat/completions", "{" + std::string(kHi) + "}"))["choices"][0]["message"]["content"];
  const auto frames =
      frames_of(post("/v1/chat/completions", with(kHi, R"("stream": true, "stream_options": {"include_usage": true})")));
  ASSERT_GE(frames.size(), 4u);
  EXPECT_EQ(json::dump(frames[0]["choices"][0]["delta"]), R"({"role":"assistant","content":""})");
  std::string joined;
  for (std::size_t i = 1; i + 2 < frames.size(); ++i) {
    joined += frames[i]["choices"][0]["delta"]["content"].get<std::string>();
    EXPECT_TRUE(frames[i]["choices"][0]["finish_reason"].is_null());
    EXPECT_TRUE(frames[i]["usage"].is_null());
  }
  EXPECT_EQ(joined, whole);
  EXPECT_EQ(frames[frames.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(frames.back()["choices"].size(), 0u);
  EXPECT_EQ(frames.back()["usage"]["completion_tokens"], 4);
  for (const json::Value& frame : frames) EXPECT_EQ(frame["id"], frames[0]["id"]);
}

TEST_F(Routes, answer_completions_for_every_form_of_prompt) {
  for (const std::string_view prompt : {R"("AB")", R"(["AB", "CD"])", "[65, 66]", "[[65, 66], [67]]"}) {
    const std::string body =
        R"({"prompt": )" + std::string(prompt) + R"(, "max_tokens": 2, "temperature": 0, "ignore_eos": true, "echo": true})";
    const RawResponse response = post("/v1/completions", body);
    ASSERT_EQ(response.status, 200) << response.body;
    const json::Value choices = json_of(response)["choices"];
    EXPECT_EQ(choices.size(),
              prompt.find("],") != std::string_view::npos || prompt.find("\",") != std::string_view::npos ? 2u : 1u);
    EXPECT_TRUE(choices[0]["text"].get<std::string>().starts_with("AB")) << response.body;
  }
  EXPECT_EQ(json_of(post("/v1/completions", R"({"prompt": "AB", "ignore_eos": true})"))["usage"]["completion_tokens"], 16);
  EXPECT_EQ(json_of(post("/v1/completions", R"({"prompt": "AB", "echo": true, "max_tokens": 0})"))["choices"][0]["text"], "AB");
}

TEST_F(Routes, render_prompts_as_token_ids) {
  const json::Value chat = json_of(post("/v1/chat/completions/render", "{" + std::string(kHi) + "}"));
  EXPECT_EQ(chat["token_ids"].size(), 19u);  // "[user]hi[assistant]"
  EXPECT_TRUE(chat["request_id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(chat["model"], "demo");
  const json::Value completions = json_of(post("/v1/completions/render", R"({"prompt": ["AB", [65, 66, 67]]})"));
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0]["token_ids"], parsed("[65,66]"));
  EXPECT_EQ(completions[1]["token_ids"], parsed("[65,66,67]"));
  EXPECT_EQ(post("/v1/chat/completions/render", "{}").status, 400);
}

TEST_F(Routes, say_which_endpoints_a_text_model_cannot_have) {
  for (const std::string_view path : {"/v1/embeddings", "/v1/moderations", "/v1/audio/speech", "/v1/images/generations"}) {
    const RawResponse response = post(path, "{}");
    EXPECT_EQ(response.status, 501) << path;
    EXPECT_NE(response.body.find(path), std::string::npos) << response.body;
  }
  EXPECT_EQ(get("/nothing").body.find("/v1/embeddings"), std::string::npos) << "it is not among the endpoints that there are";
}

TEST_F(Routes, give_log_probabilities_that_add_up) {
  const json::Value chat = json_of(post("/v1/chat/completions", with(kHi, R"("logprobs": true, "top_logprobs": 2)")));
  const json::Value content = chat["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 4u);
  for (const json::Value& entry : content) {
    EXPECT_LE(entry["logprob"].get<double>(), 0);
    ASSERT_EQ(entry["top_logprobs"].size(), 2u);
    EXPECT_EQ(entry["top_logprobs"][0]["logprob"], entry["logprob"]) << "greedy takes the most likely";
  }
  const json::Value plain = json_of(
      post("/v1/completions", R"({"prompt": "AB", "max_tokens": 3, "temperature": 0, "ignore_eos": true, "logprobs": 2})"));
  EXPECT_EQ(plain["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(plain["choices"][0]["logprobs"]["text_offset"][0], 0);
}

TEST_F(Routes, count_and_score_the_token_that_ends_an_answer) {
  constexpr std::string_view kScored =
      R"({"prompt": [65, 66, 67], "max_tokens": 1, "echo": true, "logprobs": 1, "temperature": 0,)";
  const json::Value going_on = json_of(post("/v1/completions", std::string(kScored) + R"("return_token_ids": true})"));
  const json::Value id = going_on["choices"][0]["token_ids"][0];
  const json::Value ended = json_of(post(
      "/v1/completions", std::string(kScored) + R"("return_token_ids": true, "stop_token_ids": [)" + json::dump(id) + "]}"));
  EXPECT_EQ(ended["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(ended["choices"][0]["text"], "ABC");
  EXPECT_EQ(ended["choices"][0]["token_ids"], going_on["choices"][0]["token_ids"]);
  ASSERT_EQ(ended["choices"][0]["logprobs"]["token_logprobs"].size(), 4u);
  EXPECT_EQ(ended["choices"][0]["logprobs"], going_on["choices"][0]["logprobs"]);
  EXPECT_EQ(ended["usage"], going_on["usage"]);
}

TEST_F(Routes, give_n_choices_that_a_seed_repeats) {
  const std::string body = R"({"prompt": "AB", "max_tokens": 8, "n": 3, "seed": 7, "ignore_eos": true})";
  const json::Value first = json_of(post("/v1/completions", body));
  ASSERT_EQ(first["choices"].size(), 3u);
  EXPECT_NE(first["choices"][0]["text"], first["choices"][1]["text"]);
  EXPECT_EQ(json_of(post("/v1/completions", body))["choices"], first["choices"]);
  EXPECT_EQ(first["usage"]["completion_tokens"], 24);
}

TEST_F(Routes, stop_at_a_stop_string) {
  const std::string body = R"({"prompt": "AB", "max_tokens": 8, "temperature": 0, "ignore_eos": true)";
  const std::string text = json_of(post("/v1/completions", body + "}"))["choices"][0]["text"];
  // A piece of the text that begins with a letter, taken from what this model generates.
  const auto letter = std::ranges::find_if(text, [](char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; });
  ASSERT_NE(letter, text.end()) << "the random model says nothing printable: choose another prompt";
  const std::string stop(1, *letter);
  const json::Value choice = json_of(post("/v1/completions", body + R"(, "stop": [")" + stop + "\"]}"))["choices"][0];
  EXPECT_EQ(choice["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], stop);
}

TEST_F(Routes, share_a_named_prefix_and_say_so) {
  const std::string named = with(kHi, R"("model": "demo:shop", "baton_stats": true)");
  const json::Value body = json_of(post("/v1/chat/completions", named));
  EXPECT_EQ(body["model"], "demo:shop");
  EXPECT_GE(body["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
  EXPECT_EQ(body["baton"]["cached_tokens"], body["usage"]["prompt_tokens_details"]["cached_tokens"]);
  EXPECT_GT(body["baton"]["kv_bytes_requested"], 0);
  const json::Value by_field = json_of(post("/v1/chat/completions", with(kHi, R"("prefix": "shop")")));
  EXPECT_EQ(by_field["choices"], body["choices"]);
  EXPECT_FALSE(by_field.contains("baton"));
  const std::string unnamed =
      R"({"temperature": 0, "ignore_eos": true, "max_tokens": 4, "messages": [{"role": "system", "content": ")" +
      std::string(kShopText) + R"("}, {"role": "user", "content": "hi"}]})";
  const json::Value without_name = json_of(post("/v1/chat/completions", unnamed));
  EXPECT_EQ(without_name["choices"], body["choices"]);
  EXPECT_GE(without_name["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
}

TEST_F(Routes, keep_the_caches_of_salts_apart_behind_the_public_prefix) {
  const auto cached = [](std::string_view salt) {
    const std::string long_user(200, 'x');
    const std::string body = R"({"prefix": "shop", "max_tokens": 1, "cache_salt": ")" + std::string(salt) +
                             R"(", "messages": [{"role": "user", "content": ")" + long_user + "\"}]}";
    return json_of(post("/v1/chat/completions", body))["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  const int public_tokens = cached("one");
  EXPECT_GE(public_tokens, 64);
  EXPECT_EQ(cached("two"), public_tokens);
  EXPECT_GT(cached("one"), public_tokens);
}

TEST_F(Routes, list_the_models_and_their_prefixes) {
  EXPECT_EQ(
      normalized(get("/v1/models").body),
      R"({"object":"list","data":[)"
      R"({"id":"demo","object":"model","created":TIME,"owned_by":"baton","root":"/models/demo","parent":null,"max_model_len":2048,"weight_scheme":"int4","activation_scheme":"bfloat16","permission":[]},)"
      R"({"id":"alias","object":"model","created":TIME,"owned_by":"baton","root":"/models/demo","parent":null,"max_model_len":2048,"weight_scheme":"int4","activation_scheme":"bfloat16","permission":[]},)"
      R"({"id":"demo:shop","object":"model","created":TIME,"owned_by":"baton","root":"/models/demo","parent":"demo","max_model_len":2048,"weight_scheme":"int4","activation_scheme":"bfloat16","permission":[]}]})");
  EXPECT_EQ(json_of(get("/v1/models/demo%3Ashop"))["parent"], "demo");
  EXPECT_TRUE(json_of(get("/v1/models/alias"))["parent"].is_null());
  EXPECT_EQ(get("/v1/models/gpt-4").status, 404);
  const json::Value prefix = json_of(get("/v1/prefixes"))["data"][0];
  EXPECT_EQ(prefix["id"], "shop");
  EXPECT_EQ(prefix["model"], "demo:shop");
  EXPECT_EQ(prefix["n_tokens"].get<int>() / 16 * 16, prefix["n_pinned_tokens"].get<int>());
}

TEST_F(Routes, answer_the_small_endpoints) {
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/health").body, "");
  EXPECT_EQ(get("/ping").status, 200);
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_EQ(get("/version").body, R"({"version":"0.0-test"})");
  EXPECT_EQ(json_of(get("/load"))["server_load"], 0);
  EXPECT_EQ(json_of(post("/tokenize", R"({"prompt": "AB"})"))["count"], 2);
  EXPECT_EQ(json_of(post("/detokenize", R"({"tokens": [65]})"))["prompt"], "A");
  EXPECT_EQ(json_of(get("/tokenizer_info"))["eos_token"], "<|end|>");
  const RawResponse metrics = get("/metrics");
  EXPECT_TRUE(metrics.has("Content-Type: text/plain"));
  EXPECT_NE(metrics.body.find(R"(http_requests_total{handler="/health",method="GET",status="2xx"})"), std::string::npos)
      << metrics.body;
}

TEST_F(Routes, take_deadlines_and_no_priorities_without_the_policy) {
  const auto in_time = json_of(post("/v1/completions", R"({"prompt": "AB", "max_tokens": 3, "ignore_eos": true, "priority": 0,
                                                          "deadline_ms": 600000})"));
  EXPECT_EQ(in_time["choices"][0]["finish_reason"], "length");
  const RawResponse earlier = post("/v1/completions", R"({"prompt": "AB", "max_tokens": 3, "priority": -7})");
  EXPECT_EQ(earlier.status, 400);
  EXPECT_EQ(json_of(earlier)["error"]["param"], "priority");
  const RawResponse late =
      post("/v1/completions", R"({"prompt": "AB", "max_tokens": 1500, "ignore_eos": true, "deadline_ms": 1})");
  EXPECT_EQ(late.status, 200);
  const auto choice = json_of(late)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "abort");
  EXPECT_EQ(choice["stop_reason"], "deadline");
}

struct Refusal {
  std::string_view path;
  std::string_view body;
  int status;
  std::string_view error;  ///< the whole body
};

TEST_F(Routes, refuse_in_words) {
  const std::string long_prompt = R"({"prompt": ")" + std::string(3000, 'x') + "\"}";
  const Refusal cases[] = {
      {"/v1/chat/completions", "{\"messages\": [", 400,
       R"({"error":{"message":"the request body is not valid JSON: parse error at line 1, column 15: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal","type":"BadRequestError","param":null,"code":400}})"},
      {"/v1/chat/completions", "[]", 400,
       R"({"error":{"message":"the request body must be a JSON object, not a list","type":"BadRequestError","param":null,"code":400}})"},
      {"/v1/chat/completions", R"({"model": "demo"})", 400,
       R"({"error":{"message":"'messages' is missing","type":"BadRequestError","param":"messages","code":400}})"},
      {"/v1/chat/completions", R"({"model": "gpt-4", "messages": [{"role": "user", "content": "a"}]})", 404,
       R"({"error":{"message":"the model 'gpt-4' does not exist; there are: demo, alias, demo:shop","type":"NotFoundError","param":"model","code":404}})"},
      {"/v1/completions", R"({"prompt": "a", "prefix": "bank"})", 404,
       R"({"error":{"message":"the prefix 'bank' does not exist; there are: shop","type":"NotFoundError","param":"prefix","code":404}})"},
      {"/v1/completions", R"({"prompt": "a", "suffix": "b"})", 400,
       R"({"error":{"message":"'suffix' is not supported by this server; the value accepted is \"\"","type":"BadRequestError","param":"suffix","code":400}})"},
      {"/v1/completions", R"({"prompt": "a", "prefix": "shop", "echo": true, "logprobs": 1})", 400,
       R"({"error":{"message":"'logprobs' with 'echo' is not supported by this server together with a prefix; the value accepted is null","type":"BadRequestError","param":"logprobs","code":400}})"},
  };
  for (const Refusal& refusal : cases) {
    const RawResponse response = post(refusal.path, refusal.body);
    EXPECT_EQ(response.status, refusal.status) << response.body;
    EXPECT_EQ(response.body, refusal.error);
  }
  const RawResponse too_long = post("/v1/completions", long_prompt);
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(json_of(too_long)["error"]["param"], "prompt");
  const std::string message = json_of(too_long)["error"]["message"];
  EXPECT_NE(message.find("3000"), std::string::npos) << message;
  EXPECT_NE(message.find("2048"), std::string::npos) << message;
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2048})").status, 400);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ""})").status, 400);
}

TEST_F(Routes, an_unknown_field_is_ignored) {
  EXPECT_EQ(post("/v1/chat/completions", with(kHi, R"("frobnicate": {"a": [1]}, "user": "u", "metadata": {})")).status, 200);
}

TEST_F(Routes, refuse_unknown_paths_and_methods_and_say_what_there_is) {
  const RawResponse nowhere = get("/v1/chat");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_NE(nowhere.body.find("/v1/chat/completions"), std::string::npos);
  const RawResponse method = get("/v1/chat/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_TRUE(method.has("Allow: POST, OPTIONS\r\n"));
  EXPECT_EQ(post("/v1/models", "{}").status, 405);
  RawClient client = fixture_->client();
  client.send("OPTIONS /v1/models HTTP/1.1\r\nHost: h\r\n\r\n");
  const RawResponse options = client.read_response();
  EXPECT_EQ(options.status, 204);
  EXPECT_TRUE(options.has("Allow: GET, HEAD, OPTIONS\r\n"));
  client.send("HEAD /v1/models HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_response(/*has_body=*/false).status, 200);
}

TEST_F(Routes, let_pages_call_and_read) {
  EXPECT_TRUE(post("/v1/chat/completions", with(kHi, R"("stream": true)"), "Origin: https://page\r\n")
                  .has("Access-Control-Allow-Origin: *"));
  EXPECT_TRUE(post("/v1/chat/completions", "{}", "Origin: https://page\r\n").has("Access-Control-Allow-Origin: *"));
  RawClient client = fixture_->client();
  client.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: h\r\nOrigin: https://page\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization\r\n\r\n");
  const RawResponse preflight = client.read_response();
  EXPECT_EQ(preflight.status, 200);
  EXPECT_TRUE(preflight.has("Access-Control-Allow-Headers: authorization"));
}

TEST_F(Routes, take_the_request_id_of_the_client) {
  EXPECT_EQ(json_of(post("/v1/chat/completions", "{" + std::string(kHi) + "}", "X-Request-Id: abc\r\n"))["id"], "chatcmpl-abc");
  EXPECT_EQ(json_of(post("/v1/chat/completions", with(kHi, R"("request_id": "xyz")")))["id"], "chatcmpl-xyz");
}

TEST_F(Routes, refuse_more_log_probabilities_than_an_answer_may_have) {
  std::string ids = "65";
  for (int i = 1; i < 500; ++i) ids += ",65";
  const RawResponse refused =
      post("/v1/completions", R"({"prompt": [)" + ids + R"(], "max_tokens": 1, "prompt_logprobs": 20, "n": 128})");
  EXPECT_EQ(refused.status, 400);
  const json::Value error = json_of(refused)["error"];
  EXPECT_EQ(error["param"], "prompt_logprobs");
  const std::string message = error["message"];
  EXPECT_NE(message.find("1344000"), std::string::npos) << message;  // 500 x 21 x 128
  EXPECT_NE(message.find("1048576"), std::string::npos) << message;
}

TEST(RoutesWithBudgets, refuse_bodies_of_more_values_than_memory_allows) {
  ServerOptions options;
  options.limits.budgets.values_per_body = 100;
  const ServerFixture fixture(std::move(options));
  std::string ids = "65";
  for (int i = 1; i < 90; ++i) ids += ",65";
  EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": [)" + ids + "]}").status, 200);
  for (int i = 0; i < 10; ++i) ids += ",65";
  const RawResponse refused = fixture.post("/tokenize", R"({"prompt": [)" + ids + "]}");
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find("accepts 100"), std::string::npos) << refused.body;
}

TEST(RoutesWithBudgets, keep_log_probabilities_within_one) {
  ServerOptions options;
  options.limits.budgets.scores = 5'000;
  HeldServer fixture(std::move(options));
  const std::string tokens = R"({"prompt": "AB", "ignore_eos": true, "temperature": 0, "logprobs": 1, "max_tokens": )";
  RawClient waits = fixture.client();
  waits.send_post("/v1/completions", tokens + "1500}");
  fixture.generate();
  const RawResponse refused = fixture.post("/v1/completions", tokens + "1500}");
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_TRUE(refused.has("Retry-After: 1"));
  fixture.release();
  EXPECT_EQ(fixture.post("/v1/completions", tokens + "5}").status, 200);
  EXPECT_EQ(waits.read_response().status, 200);
  EXPECT_NE(fixture.get("/metrics").body.find(R"(baton:budget_refusals_total{model_name="demo",engine="0",budget="scores"} 1)"),
            std::string::npos);
  fixture.wait_until([&] {
    return fixture.get("/metrics").body.find(R"(baton:budget_used{model_name="demo",engine="0",budget="scores"} 0)") !=
           std::string::npos;
  });
  EXPECT_EQ(fixture.post("/v1/completions", tokens + "1500}").status, 200);
}

TEST(RoutesMetrics, eight_requests_that_wait_for_metrics_get_the_same_page) {
  const ServerFixture fixture;
  std::deque<RawClient> clients;
  {
    const PrefixesHeld held(fixture.server->prefixes());  // the page counts them
    for (int i = 0; i < 100; ++i) clients.emplace_back(fixture.server->port()).send("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
    ServerFixture::wait_until([&] { return fixture.server->n_open() == clients.size(); });
  }
  std::set<std::string> pages;
  for (RawClient& client : clients) {
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    pages.insert(response.body);
  }
  EXPECT_LE(pages.size(), 1u + 13u) << "the first page, and one for eight requests each that came while it was made";
}

TEST(RoutesWithKeys, guard_all_but_health_and_metrics) {
  ServerOptions options;
  options.keys.api_keys = {"secret"};
  const ServerFixture fixture(std::move(options));
  const RawResponse refused = fixture.get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.body, R"({"error":"Unauthorized"})");
  EXPECT_EQ(fixture.post("/v1/completions", R"({"prompt": "a"})").status, 401);
  EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": "a"})").status, 401);
  EXPECT_EQ(fixture.post("/tokenize", R"({"prompt": "a"})", "Authorization: Bearer secret\r\n").status, 200);
  // Neither does it read a body whose sender has no key, nor one for a path that is not there.
  const auto stalled = [&](const std::string& line) {
    RawClient client = fixture.client();
    client.send("POST " + line + "\r\nContent-Length: 30000000\r\n\r\n{");
    return client.read_response();
  };
  const RawResponse early = stalled("/v1/completions HTTP/1.1\r\nHost: h\r\nOrigin: https://page");
  EXPECT_EQ(early.status, 401);
  EXPECT_TRUE(early.has("Access-Control-Allow-Origin: *"));
  EXPECT_EQ(stalled("/v1/nothing HTTP/1.1\r\nHost: h").status, 404);
  EXPECT_EQ(stalled("/health HTTP/1.1\r\nHost: h").status, 405);
  const std::string page = fixture.get("/metrics").body;
  EXPECT_NE(page.find(R"(http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 2)"), std::string::npos);
  EXPECT_NE(page.find(R"(baton:budget_used{model_name="demo",engine="0",budget="body_bytes"} 0)"), std::string::npos) << page;
  for (const std::string_view open : {"/health", "/ping", "/metrics", "/version"})
    EXPECT_EQ(fixture.get(open).status, 200) << open;
}

TEST(RoutesOfPosts, refuse_bodies_of_another_type_than_json) {
  const ServerFixture fixture;
  const auto status_of = [&](const std::string& path, const std::string& type) {
    RawClient client = fixture.client();
    client.send("POST " + path + " HTTP/1.1\r\nHost: h\r\n" + type + "Content-Length: 17\r\n\r\n{\"prompt\": \"abc\"}");
    return client.read_response();
  };
  // A page of another origin may send these three without a question of its browser to the server before.
  for (const std::string type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"})
    EXPECT_EQ(status_of("/tokenize", "Content-Type: " + type + "\r\n").status, 415) << type;
  const RawResponse none = status_of("/v1/completions", "");
  EXPECT_EQ(none.status, 415);
  EXPECT_EQ(none.body, R"({"error":{"message":"the body must be JSON, with 'Content-Type: application/json'; the type is ''",)"
                       R"("type":"BadRequestError","param":null,"code":415}})");
  for (const std::string type : {"application/json", "Application/JSON ; charset=utf-8", "application/json;charset=\"utf-8\""})
    EXPECT_EQ(status_of("/tokenize", "content-type: " + type + "\r\n").status, 200) << type;
  EXPECT_EQ(status_of("/ping", "").status, 200);
}

TEST(RoutesOfIds, slashes_at_the_end_of_a_path_are_none) {
  const ServerFixture fixture;
  for (const std::string path : {"/v1/models/", "/v1/prefixes/", "/v1/models//", "/health/"})
    EXPECT_EQ(fixture.get(path).status, 200) << path;
  EXPECT_EQ(fixture.get("/v1/models/demo/").body, fixture.get("/v1/models/demo").body);
  EXPECT_EQ(fixture.post("/tokenize/", R"({"prompt": "A"})").status, 200);
}

TEST(RoutesOfIds, a_path_that_is_near_another_names_it) {
  const ServerFixture fixture;
  for (const std::string path : {"//v1/models", "/models", "/v1/v1/models", "/v1//models/"})
    EXPECT_NE(
        fixture.get(path).body.find("there is no " + path + " here (is /v1/models meant? check the base URL); there are: "),
        std::string::npos)
        << fixture.get(path).body;
  EXPECT_NE(fixture.get("/v2/models").body.find("there is no /v2/models here; there are: "), std::string::npos);
  // What clients send whose base URL lacks /v1, has it although they add it, or ends with a slash; in the form of the dialect.
  const std::pair<std::string, std::string> cases[] = {{"/chat/completions", "/v1/chat/completions"},
                                                       {"/v1/v1/chat/completions", "/v1/chat/completions"},
                                                       {"//v1//chat/completions/", "/v1/chat/completions"},
                                                       {"/completions", "/v1/completions"},
                                                       {"/responses", "/v1/responses"},
                                                       {"//v1/responses/resp_1", "/v1/responses/resp_1"},
                                                       {"/messages", "/v1/messages"},
                                                       {"/v1/v1/messages", "/v1/messages"},
                                                       {"//v1/messages/count_tokens", "/v1/messages/count_tokens"}};
  for (const auto& [path, meant] : cases) {
    const RawResponse response = fixture.post(path, "{}");
    EXPECT_EQ(response.status, 404) << path;
    const json::Value body = parsed(response.body);
    const bool is_messages = meant.starts_with("/v1/messages");
    EXPECT_EQ(body.contains("type"), is_messages) << response.body;
    EXPECT_EQ(body["error"]["type"], is_messages ? "not_found_error" : "NotFoundError") << response.body;
    EXPECT_TRUE(body["error"]["message"].get<std::string>().starts_with(
        fmt::format("there is no {} here (is {} meant? check the base URL); there are: ", path, meant)))
        << response.body;
  }
}

TEST(RoutesOfBodies, a_compressed_body_is_decoded_under_the_limits) {
  ServerOptions options;
  options.limits.max_body_bytes = 1000;
  const ServerFixture fixture(std::move(options));
  const auto status_of = [&](const std::string& coding, const std::string& bytes) {
    RawClient client = fixture.client();
    client.send("POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-encoding: " + coding +
                "\r\ncontent-length: " + std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
    return client.read_response();
  };
  // zlib's stored blocks: a length, its complement, the bytes; raw, so that no checksum follows.
  const auto stored = [](const std::string& text) {
    const auto n = static_cast<std::uint16_t>(text.size());
    const auto byte = [](unsigned value) { return std::string(1, static_cast<char>(value & 0xFFU)); };
    return byte(1) + byte(n) + byte(n >> 8) + byte(~n) + byte(~n >> 8) + text;
  };
  EXPECT_EQ(status_of("deflate", stored(R"({"prompt": "A"})")).status, 200);
  EXPECT_EQ(status_of("identity", R"({"prompt": "A"})").status, 200);
  EXPECT_EQ(status_of("deflate", R"({"prompt": "A"})").status, 400);
  EXPECT_EQ(status_of("gzip", "").status, 400);
  const std::string fits = R"({"prompt": ")" + std::string(900, 'A') + "\"}";
  EXPECT_EQ(status_of("deflate", stored(fits)).status, 200);
  const RawResponse refused = status_of("br", R"({"prompt": "A"})");
  EXPECT_EQ(refused.status, 415);
  EXPECT_TRUE(refused.has("Accept-Encoding: gzip, deflate, zstd\r\n")) << refused.head;
}

}  // namespace
}  // namespace baton
