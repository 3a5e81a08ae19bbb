/// Prefixes over HTTP: request and response texts, and the engine's state after them (server/routes/routes.h).
#include <deque>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace baton {
namespace {

std::string normalized(std::string body) {
  body = std::regex_replace(body, std::regex(R"x("(created|expires_at)":\d+)x"), "\"$1\":TIME");
  return std::regex_replace(body, std::regex(R"x("((?:pre)?fill_ms)":[0-9.e+-]+)x"), "\"$1\":MS");
}

constexpr std::string_view kAsk = R"("messages": [{"role": "user", "content": "hi"}], "temperature": 0, "ignore_eos": true)";

std::string asking(std::string_view prefix, int max_tokens) {
  return "{" + std::string(kAsk) + R"(, "prefix": ")" + std::string(prefix) + R"(", "max_tokens": )" +
         std::to_string(max_tokens) + "}";
}
std::int64_t n_pinned(const ServerFixture& fixture) { return fixture.engine->metrics().kv_blocks_pinned.value(); }

TEST(PrefixApi, reads_what_registers_a_prefix) {
  const auto text =
      parse_prefix_request(parsed(R"({"id": "shop", "text": "Mugs.", "version": "2", "ttl_seconds": 60, "x": 1})"));
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->definition.name, "shop");
  EXPECT_EQ(json::dump(text->definition.messages), R"([{"role":"system","content":"Mugs."}])");
  EXPECT_EQ(text->definition.version, "2");
  EXPECT_EQ(text->definition.ttl, std::chrono::seconds(60));
  EXPECT_EQ(text->unknown_fields, std::vector<std::string>{"x"});
  const auto messages = parse_prefix_request(
      parsed(R"({"id": "shop", "text": null, "messages": [{"role": "user", "content": "a"}], "version": null})"));
  ASSERT_TRUE(messages) << messages.error().message;
  EXPECT_EQ(messages->content_field, "messages");
  EXPECT_EQ(messages->definition.version, "");
  EXPECT_FALSE(messages->definition.ttl);
  const auto tokens = parse_prefix_request(parsed(R"({"id": "shop", "tokens": [5, 6]})"));
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->definition.tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(tokens->content_field, "tokens");
  const auto tools = parse_prefix_request(parsed(R"({"id": "shop", "tools": [{"function": {"name": "f"}}]})"));
  ASSERT_TRUE(tools) << tools.error().message;
  EXPECT_EQ(json::dump(tools->definition.tools), R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(json::dump(tools->definition.messages), "[]");
  EXPECT_EQ(tools->content_field, "tools");
}

TEST(PrefixApi, names_the_field_that_is_wrong) {
  const auto param = [](std::string_view body) {
    const auto request = parse_prefix_request(parsed(body));
    EXPECT_FALSE(request) << body;
    return request ? std::string() : request.error().param;
  };
  EXPECT_EQ(param(R"({"text": "a"})"), "id");
  EXPECT_EQ(param(R"({"id": 1, "text": "a"})"), "id");
  EXPECT_EQ(param(R"({"id": "a:b", "text": "a"})"), "id");
  EXPECT_EQ(param(R"({"id": "shop"})"), "text");
  EXPECT_EQ(param(R"({"id": "shop", "text": ""})"), "text");
  EXPECT_EQ(param(R"({"id": "shop", "text": "a", "messages": [{"role": "user", "content": "a"}]})"), "text");
  EXPECT_EQ(param(R"({"id": "shop", "messages": []})"), "messages");
  EXPECT_EQ(param(R"({"id": "shop", "tools": []})"), "text") << "an empty list is none";
  EXPECT_EQ(param(R"({"id": "shop", "text": "a", "tools": {}})"), "tools");
  EXPECT_EQ(param(R"({"id": "shop", "text": "a", "tools": [{"function": {"name": "a b"}}]})"), "tools[0].function.name");
  EXPECT_EQ(param(R"({"id": "shop", "tokens": [1], "tools": [{"function": {"name": "f"}}]})"), "tools");
  EXPECT_EQ(param(R"({"id": "shop", "tokens": []})"), "tokens");
  EXPECT_EQ(param(R"({"id": "shop", "tokens": [-1]})"), "tokens");
  EXPECT_EQ(param(R"({"id": "shop", "text": "a", "version": ""})"), "version");
  EXPECT_EQ(param(R"({"id": "shop", "text": "a", "version": 2})"), "version");
  EXPECT_EQ(param(R"({"id": "shop", "text": "a", "ttl_seconds": 0})"), "ttl_seconds");
}

TEST(PrefixApi, registers_lists_serves_and_deletes_a_prefix) {
  const ServerFixture fixture;
  const std::int64_t n_before = n_pinned(fixture);
  const RawResponse made = fixture.post("/v1/prefixes", R"({"id": "bank", "text": "Lends umbrellas to those who ask."})");
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string entry =
      R"({"id":"bank","object":"prefix","created":TIME,"model":"demo:bank","source":"api","version":null,"state":"ready","expires_at":null,)"
      R"("n_tools":0,"n_tokens":46,"n_pinned_tokens":32,"n_pinned_blocks":2,"hits":)";
  EXPECT_EQ(normalized(made.body), entry + R"(0,"prefill_ms":MS,"fill_ms":MS,"loaded":false,"stored":false})");
  EXPECT_EQ(n_pinned(fixture), n_before + 2);
  EXPECT_NE(fixture.get("/metrics").body.find("baton:kv_blocks_pinned{"), std::string::npos);
  const json::Value answer = parsed(fixture.post("/v1/chat/completions", asking("bank", 2)).body);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
  EXPECT_EQ(normalized(fixture.get("/v1/prefixes/bank").body),
            entry + R"(1,"prefill_ms":MS,"fill_ms":MS,"loaded":false,"stored":false})");
  const json::Value list = parsed(fixture.get("/v1/prefixes").body)["data"];
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["id"], "shop");
  EXPECT_EQ(list[1], parsed(fixture.get("/v1/prefixes/bank").body));
  EXPECT_EQ(fixture.get("/v1/models/demo:bank").status, 200);

  const RawResponse removed = fixture.remove("/v1/prefixes/bank");
  EXPECT_EQ(removed.status, 200);
  EXPECT_EQ(removed.body, R"({"id":"bank","object":"prefix","deleted":true})");
  ServerFixture::wait_until([&] { return n_pinned(fixture) == n_before; });
  const std::string gone =
      R"({"error":{"message":"the prefix 'bank' does not exist; there are: shop","type":"NotFoundError","param":"id","code":404}})";
  for (const RawResponse& response : {fixture.get("/v1/prefixes/bank"), fixture.remove("/v1/prefixes/bank")}) {
    EXPECT_EQ(response.status, 404);
    EXPECT_EQ(response.body, gone);
  }
  EXPECT_EQ(fixture.post("/v1/chat/completions", asking("bank", 2)).status, 404);
  EXPECT_EQ(fixture.remove("/v1/prefixes").status, 405);
}

TEST(PrefixApi, a_prefix_that_is_deleted_in_use_serves_its_users_to_their_end) {
  HeldServer fixture;
  const json::Value whole = parsed(ServerFixture().post("/v1/chat/completions", asking("shop", 100)).body);
  RawClient user = fixture.client();
  user.send_post("/v1/chat/completions", asking("shop", 100));
  fixture.generate();
  EXPECT_EQ(fixture.remove("/v1/prefixes/shop").status, 200);
  fixture.release();
  const RawResponse response = user.read_response();
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(parsed(response.body)["choices"], whole["choices"]);
  ServerFixture::wait_until([&] { return fixture.engine->metrics().kv_blocks_used.value() == 0; });
  EXPECT_EQ(parsed(fixture.get("/v1/prefixes").body)["data"].size(), 0u);
  EXPECT_NE(fixture.get("/v1/prefixes/shop").body.find("there are: none"), std::string::npos);
}

TEST(PrefixApi, another_version_replaces_and_the_same_one_does_not) {
  const ServerFixture fixture;
  const RawResponse same = fixture.post("/v1/prefixes", R"({"id": "shop", "text": "Sells nothing."})");
  EXPECT_EQ(same.status, 400);
  EXPECT_EQ(
      same.body,
      R"({"error":{"message":"prefix shop is already registered; another version would replace it","type":"BadRequestError","param":"version","code":400}})");
  const RawResponse other = fixture.post("/v1/prefixes", R"({"id": "shop", "text": "Sells nothing.", "version": "2"})");
  ASSERT_EQ(other.status, 200) << other.body;
  EXPECT_EQ(parsed(other.body)["version"], "2");
  EXPECT_EQ(parsed(fixture.get("/v1/prefixes").body)["data"].size(), 1u);
  const json::Value ids = parsed(fixture.post("/tokenize", R"({"model": "demo:shop", "prompt": "x"})").body)["tokens"];
  const RawResponse text = fixture.post("/detokenize", R"({"tokens": )" + json::dump(ids) + "}");
  EXPECT_EQ(text.body, R"({"prompt":"Sells nothing.x"})");
  ServerFixture::wait_until([&] { return n_pinned(fixture) == parsed(other.body)["n_pinned_blocks"].get<int>(); });
}

TEST(PrefixApi, a_prefix_with_a_lifetime_is_gone_after_it) {
  const ServerFixture fixture;
  const std::int64_t n_before = n_pinned(fixture);
  const RawResponse made =
      fixture.post("/v1/prefixes", R"({"id": "brief", "text": "Open for a moment, then closed.", "ttl_seconds": 1})");
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(parsed(made.body)["expires_at"].get<std::int64_t>(), parsed(made.body)["created"].get<std::int64_t>() + 1);
  ServerFixture::wait_until([&] { return fixture.get("/v1/prefixes/brief").status == 404; });
  ServerFixture::wait_until([&] { return n_pinned(fixture) == n_before; });
}

TEST(PrefixApi, refuses_what_cannot_be_pinned_and_says_why) {
  const ServerFixture fixture({}, {.max_pinned_blocks = 8});
  const auto error = [&](const std::string& body) {
    const RawResponse response = fixture.post("/v1/prefixes", body);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.body;
  };
  EXPECT_EQ(
      error(R"({"id": "big", "text": ")" + std::string(100, 'a') + "\"}"),
      R"({"error":{"message":"prefix big: a prefix of 114 tokens cannot be pinned: 11 blocks of 16 tokens would be, and --max-pinned-blocks is 8; delete a prefix or raise the limit","type":"BadRequestError","param":"text","code":400}})");
  EXPECT_EQ(
      error(R"({"id": "r", "messages": [{"role": "user", "content": ")" + std::string(3000, 'a') + "\"}]}"),
      R"({"error":{"message":"prefix r: it has 3012 tokens, which leaves no room in the maximum context length of 2048 tokens","type":"BadRequestError","param":"messages","code":400}})");
  EXPECT_NE(error(R"({"id": "r", "messages": [{"role": "robot", "content": "a"}]})").find("robots may not speak"),
            std::string::npos);
  EXPECT_NE(error("[]").find("must be a JSON object"), std::string::npos);
  EXPECT_EQ(parsed(fixture.get("/v1/prefixes").body)["data"].size(), 1u);
  EXPECT_EQ(fixture.post("/v1/prefixes", R"({"id": "big", "text": "Small."})").status, 200) << "the name is free";
}

TEST(PrefixApi, bounds_number_and_bytes_of_what_is_registered) {
  ServerOptions options;
  options.prefix_limits = {.max_number = 2, .max_bytes = 2000};
  const ServerFixture fixture(std::move(options));
  const auto add = [&](const std::string& id, std::size_t n_bytes, const std::string& more = "") {
    return fixture.post("/v1/prefixes", R"({"id": ")" + id + R"(", "text": ")" + std::string(n_bytes, 'a') + "\"" + more + "}");
  };
  EXPECT_EQ(add("a", 10).status, 200);
  const RawResponse large = add("b", 500);
  EXPECT_EQ(large.status, 400);
  EXPECT_NE(large.body.find("--max-prefix-bytes is 2000"), std::string::npos) << large.body;
  EXPECT_EQ(add("b", 10).status, 200);
  const RawResponse many = add("c", 1);
  EXPECT_EQ(many.status, 400);
  EXPECT_EQ(parsed(many.body)["error"]["message"], "prefix c: 2 prefixes are registered, and --max-prefixes is 2; delete one");
  EXPECT_EQ(add("b", 20, R"(, "version": "2")").status, 200) << "what it replaces does not count";
  EXPECT_EQ(fixture.remove("/v1/prefixes/a").status, 200);
  EXPECT_EQ(add("c", 1).status, 200);
}

TEST(PrefixApi, keeps_only_the_fields_of_messages_that_templates_read) {
  const auto request = parse_prefix_request(parsed(
      R"({"id": "a", "messages": [{"role": "system", "content": "x", "name": "n", "junk": "y"}, {"role": "user", "content": "z", "junk": [1]}]})"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(json::dump(request->definition.messages),
            R"([{"role":"system","content":"x","name":"n"},{"role":"user","content":"z"}])");
  EXPECT_EQ(request->unknown_fields, (std::vector<std::string>{"messages.junk"}));
}

TEST(PrefixApi, lists_few_names_in_errors) {
  const ServerFixture fixture;
  for (int i = 0; i < 14; ++i)
    ASSERT_EQ(fixture.post("/v1/prefixes", R"({"id": "p)" + std::to_string(i) + R"(", "text": "Small."})").status, 200);
  const std::string message = parsed(fixture.get("/v1/prefixes/none").body)["error"]["message"];
  EXPECT_EQ(message, "the prefix 'none' does not exist; there are: shop, p0, p1, p2, p3, p4, p5, p6, p7, p8, ... and 5 more");
  const std::string model = parsed(fixture.get("/v1/models/none").body)["error"]["message"];
  EXPECT_NE(model.find(", ... and 7 more"), std::string::npos) << model;
}

TEST(PrefixApi, a_prefix_of_tokens_is_pinned_and_served_to_completions) {
  const ServerFixture fixture;
  std::string ids = "65";
  for (int i = 0; i < 40; ++i) ids += ", 66";
  const RawResponse made = fixture.post("/v1/prefixes", R"({"id": "ids", "tokens": [)" + ids + "]}");
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(parsed(made.body)["n_pinned_blocks"], 2);
  const RawResponse answer =
      fixture.post("/v1/completions", R"({"prefix": "ids", "prompt": "C", "max_tokens": 2, "ignore_eos": true})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(parsed(answer.body)["usage"]["prompt_tokens"], 42);
  EXPECT_EQ(parsed(answer.body)["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
  EXPECT_EQ(fixture.post("/v1/chat/completions", asking("ids", 2)).status, 400);
  const RawResponse wrong = fixture.post("/v1/prefixes", R"({"id": "far", "tokens": [65, 70000]})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(parsed(wrong.body)["error"]["param"], "tokens") << wrong.body;
}

/// A server whose prefix prefills take hundreds of steps, and which computes only what a test lets it.
class LongPrefills : public ::testing::Test {
 protected:
  static std::string body(std::string_view id, std::string_view more) {
    return R"({"id": ")" + std::string(id) + R"(", "text": ")" + std::string(kTextBytes, 'a') + "\"" + std::string(more) + "}";
  }
  /// Asks for a prefix prefill and waits until it has begun.
  void begin(std::string_view body) {
    filler_.send_post("/v1/prefixes", body);
    const std::int64_t n_before = fixture_.engine->metrics().kv_blocks_used.value();
    fixture_.run_until([&] { return fixture_.engine->metrics().kv_blocks_used.value() > n_before; });
  }
  static constexpr std::size_t kTextBytes = 12'000;
  HeldServer fixture_{{}, {.max_num_batched_tokens = 16}, 1100, 16'384};
  RawClient filler_ = fixture_.client();
};

TEST_F(LongPrefills, end_when_their_prefix_is_deleted) {
  begin(body("long", ""));
  EXPECT_EQ(fixture_.remove("/v1/prefixes/long").status, 200);
  fixture_.release();
  const RawResponse response = filler_.read_response();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(
      response.body,
      R"({"error":{"message":"prefix long was cancelled while it was being computed: it was removed","type":"BadRequestError","param":"id","code":400}})");
  EXPECT_EQ(fixture_.get("/v1/prefixes/long").status, 404);
}

TEST_F(LongPrefills, and_what_waits_for_them_are_shown_with_their_state) {
  begin(body("long", R"(, "version": "1")"));
  RawClient queued = fixture_.client();
  queued.send_post("/v1/prefixes", R"({"id": "queued", "text": "Small."})");
  RawClient newer = fixture_.client();
  newer.send_post("/v1/prefixes", R"({"id": "shop", "text": "Sells nothing.", "version": "2"})");
  json::Value list;
  ServerFixture::wait_until([&] {
    list = parsed(fixture_.get("/v1/prefixes").body)["data"];
    return list.size() == 3 && list[0].contains("replacement");
  });
  EXPECT_EQ(json::dump(list[0]["replacement"]), R"({"version":"2","state":"waiting"})");
  EXPECT_EQ(list[0]["state"], "ready") << "the old version serves";
  const std::string shown =
      R"({"id":"long","object":"prefix","created":null,"model":"demo:long","source":"api","version":"1","state":"computing"})";
  EXPECT_EQ(json::dump(list[1]), shown);
  EXPECT_EQ(fixture_.get("/v1/prefixes/long").body, shown);
  EXPECT_EQ(parsed(fixture_.get("/v1/prefixes/queued").body)["state"], "waiting");
  const json::Value unready = parsed(fixture_.post("/v1/chat/completions", asking("queued", 1)).body)["error"];
  EXPECT_EQ(unready["message"], "the prefix 'queued' does not serve: its state is waiting");
  EXPECT_EQ(unready["code"], 404);
  EXPECT_EQ(fixture_.remove("/v1/prefixes/long").status, 200);
  fixture_.release();
  EXPECT_EQ(filler_.read_response().status, 400);
  EXPECT_EQ(queued.read_response().status, 200);
  EXPECT_EQ(newer.read_response().status, 200);
  EXPECT_EQ(parsed(fixture_.get("/v1/prefixes/queued").body)["state"], "ready");
}

TEST_F(LongPrefills, end_when_another_version_comes) {
  begin(body("long", R"(, "version": "1")"));
  RawClient other = fixture_.client();
  other.send_post("/v1/prefixes", R"({"id": "long", "text": "Short.", "version": "2"})");
  fixture_.run_until([&] { return filler_.has_come("HTTP/1.1"); });
  fixture_.release();
  EXPECT_EQ(filler_.read_response().status, 400);
  EXPECT_EQ(other.read_response().status, 200);
  EXPECT_EQ(parsed(fixture_.get("/v1/prefixes/long").body)["version"], "2");
}

TEST_F(LongPrefills, leave_the_old_version_when_they_are_cancelled) {
  begin(body("shop", R"(, "version": "2")"));
  RawClient again = fixture_.client();
  again.send_post("/v1/prefixes", R"({"id": "shop", "text": "Robots.", "version": "3", "ttl_seconds": 0})");
  EXPECT_EQ(again.read_response().status, 400) << "what is refused stops nothing";
  EXPECT_EQ(fixture_.get("/v1/prefixes/shop").status, 200) << "the old version serves";
  EXPECT_EQ(fixture_.remove("/v1/prefixes/shop").status, 200);
  fixture_.release();
  EXPECT_EQ(filler_.read_response().status, 400);
  EXPECT_EQ(fixture_.get("/v1/prefixes/shop").status, 404);
}

TEST_F(LongPrefills, end_when_their_client_leaves) {
  const std::int64_t n_before = n_pinned(fixture_);
  begin(body("long", ""));
  filler_.close();
  fixture_.wait_until_left();
  RawClient next = fixture_.client();
  next.send_post("/v1/prefixes", R"({"id": "next", "text": "Small."})");
  fixture_.run_until([&] { return next.has_come("HTTP/1.1"); });
  fixture_.release();
  EXPECT_EQ(next.read_response().status, 200);
  EXPECT_EQ(fixture_.get("/v1/prefixes/long").status, 404);
  EXPECT_EQ(fixture_.remove("/v1/prefixes/next").status, 200);
  ServerFixture::wait_until([&] { return n_pinned(fixture_) == n_before; });
}

TEST_F(LongPrefills, leave_what_waits_behind_them_to_be_deleted_or_left) {
  begin(body("long", ""));
  RawClient deleted = fixture_.client();
  deleted.send_post("/v1/prefixes", R"({"id": "queued", "text": "Small."})");
  ServerFixture::wait_until([&] { return fixture_.remove("/v1/prefixes/queued").status == 200; });
  const RawResponse response = deleted.read_response();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(parsed(response.body)["error"]["message"], "prefix queued was removed before it was computed");
  EXPECT_EQ(fixture_.remove("/v1/prefixes/queued").status, 404);
  RawClient left = fixture_.client();
  left.send_post("/v1/prefixes", R"({"id": "left", "text": "Small."})");
  ServerFixture::wait_until([&] { return fixture_.server->n_open() == 2; });
  left.close();
  ServerFixture::wait_until([&] { return fixture_.server->n_open() == 1; });  // else it is computed before its client has left
  EXPECT_EQ(fixture_.remove("/v1/prefixes/long").status, 200) << "the long one was computed all the time";
  fixture_.release();
  EXPECT_EQ(filler_.read_response().status, 400);
  EXPECT_EQ(fixture_.post("/v1/prefixes", R"({"id": "next", "text": "Small."})").status, 200);
  EXPECT_EQ(fixture_.get("/v1/prefixes/left").status, 404);
  EXPECT_EQ(fixture_.get("/v1/prefixes/queued").status, 404);
}

TEST_F(LongPrefills, let_only_so_many_wait) {
  begin(body("long", ""));
  std::deque<RawClient> waiting;
  for (std::size_t i = 0; i <= kMaxQueuedPrefixes; ++i) {
    waiting.emplace_back(fixture_.server->port());
    waiting.back().send_post("/v1/prefixes", R"({"id": "queued)" + std::to_string(i) + R"(", "text": "Small."})");
  }
  // One of them is refused at once; which one depends on the order in which they arrived.
  ServerFixture::wait_until([&] {
    return fixture_.get("/metrics").body.find(R"(http_requests_total{handler="/v1/prefixes",method="POST",status="5xx"} 1)") !=
           std::string::npos;
  });
  EXPECT_EQ(fixture_.remove("/v1/prefixes/long").status, 200);
  fixture_.release();
  int n_made = 0;
  for (RawClient& client : waiting) n_made += client.read_response().status == 200 ? 1 : 0;
  EXPECT_EQ(n_made, static_cast<int>(kMaxQueuedPrefixes));
}

TEST_F(LongPrefills, end_when_the_server_shuts_down) {
  begin(body("long", ""));
  fixture_.server->begin_shutdown();
  fixture_.release();
  EXPECT_EQ(filler_.read_response().status, 503);
  fixture_.server->wait();
}

TEST(PrefixApi, needs_the_key_and_a_server_that_does_not_drain) {
  ServerOptions options;
  options.keys.api_keys = {"secret"};
  const ServerFixture fixture(std::move(options));
  const std::string body = R"({"id": "bank", "text": "Lends umbrellas."})";
  EXPECT_EQ(fixture.post("/v1/prefixes", body).status, 401);
  EXPECT_EQ(fixture.remove("/v1/prefixes/shop").status, 401);
  EXPECT_EQ(fixture.get("/v1/prefixes/shop").status, 401);
  fixture.engine->begin_drain();
  EXPECT_EQ(fixture.post("/v1/prefixes", body, "Authorization: Bearer secret\r\n").status, 503);
}

}  // namespace
}  // namespace baton
