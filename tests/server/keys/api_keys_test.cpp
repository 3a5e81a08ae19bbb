/// Rights of callers, quotas, and cache salts of keys (server/keys/api_keys.h), alone and over HTTP.
#include "server/keys/api_keys.h"

#include <csignal>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "io/file.h"
#include "server/prefixes_held.h"
#include "server/server_fixture.h"

namespace baton {
namespace {

using std::chrono::seconds;
using Clock = RateLimit::Clock;

const std::string kKeys = R"({"keys": [
  {"name": "shop", "key": "shop-key", "weight": 3},
  {"name": "bank", "key": "bank-key", "role": "admin"}]})";

class ApiKeyFile : public ::testing::Test {
 protected:
  ApiKeyFile() { write(kKeys); }
  ~ApiKeyFile() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { EXPECT_TRUE(write_file(path_, text)); }
  std::unique_ptr<ApiKeys> keys(std::vector<std::string> flags = {}, std::vector<std::string> admins = {}) const {
    auto made = ApiKeys::create({std::move(flags), std::move(admins), path_});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  ServerOptions options() const {
    ServerOptions options;
    options.keys.file = path_;
    options.handles_signals = true;
    return options;
  }

  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string("api_keys_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".json");
};

std::string bearer(std::string_view key) { return "Authorization: Bearer " + std::string(key) + "\r\n"; }

TEST(ApiKeys, lets_everybody_in_without_keys) {
  const auto keys = *ApiKeys::create({});
  EXPECT_FALSE(keys->needs_key());
  for (const std::string_view given : {"", "Bearer any"}) {
    const auto caller = keys->identify(given);
    ASSERT_TRUE(caller);
    EXPECT_EQ(caller->account, nullptr);
    EXPECT_EQ(caller->role, KeyRole::admin);
    EXPECT_EQ(caller->tenant.id, 0);
  }
}

TEST(ApiKeys, asks_for_one_of_the_keys) {
  const auto keys = *ApiKeys::create({{"first", "second"}, {}});
  EXPECT_TRUE(keys->needs_key());
  ASSERT_TRUE(keys->identify("Bearer first") && keys->identify("bearer second"));
  EXPECT_NE(keys->identify("Bearer first")->tenant.id, keys->identify("Bearer second")->tenant.id);
  EXPECT_EQ(keys->identify("Bearer first")->role, KeyRole::admin);
  for (const std::string_view wrong :
       {"", "Bearer", "Bearer ", "first", "Basic first", "Bearer firs", "Bearer firstx", "Bearer second "})
    EXPECT_FALSE(keys->identify(wrong)) << wrong;
}

TEST(ApiKeys, an_admin_key_takes_the_right_from_the_others) {
  const auto keys = *ApiKeys::create({{"first"}, {"root"}});
  EXPECT_EQ(keys->identify("Bearer first")->role, KeyRole::user);
  EXPECT_EQ(keys->identify("Bearer root")->role, KeyRole::admin);
  EXPECT_FALSE(keys->identify(""));
  const auto only_admin = *ApiKeys::create({{}, {"root"}});
  EXPECT_EQ(only_admin->identify("")->role, KeyRole::user);
  EXPECT_EQ(only_admin->identify("Bearer root")->role, KeyRole::admin);
}

TEST(ApiKeys, refuses_a_key_with_two_roles) {
  const auto made = ApiKeys::create({{"same"}, {"same"}});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "the keys api-key[0] and admin-api-key[0] are the same; a key is given once");
}

TEST_F(ApiKeyFile, gives_each_entry_its_role_weight_tenant_and_salt) {
  const auto keys = this->keys({"flag"});
  const Caller shop = *keys->identify("Bearer shop-key");
  const Caller bank = *keys->identify("Bearer bank-key");
  const Caller flag = *keys->identify("Bearer flag");
  EXPECT_EQ(shop.role, KeyRole::user);
  EXPECT_EQ(bank.role, KeyRole::admin);
  EXPECT_EQ(shop.tenant.weight, 3);
  EXPECT_EQ(bank.tenant.weight, 1);
  EXPECT_TRUE(shop.tenant.id != bank.tenant.id && bank.tenant.id != flag.tenant.id && shop.tenant.id != flag.tenant.id);
  EXPECT_FALSE(flag.salt);
}

TEST_F(ApiKeyFile, no_request_can_name_another_keys_salt) {
  const auto keys = this->keys({"flag"});
  const Caller shop = *keys->identify("Bearer shop-key");
  const Caller bank = *keys->identify("Bearer bank-key");
  const Caller flag = *keys->identify("Bearer flag");
  const std::string shops = cache_salt_of(shop, "");
  EXPECT_FALSE(shops.empty());
  EXPECT_NE(cache_salt_of(shop, "mine"), shops);
  EXPECT_EQ(cache_salt_of(flag, ""), "") << "keys without salts share";
  for (const std::string& attempt : {shops, shops.substr(2), std::string("name:shop"), std::string("9:name:shop")})
    for (const Caller* other : {&bank, &flag, &shop}) EXPECT_NE(cache_salt_of(*other, attempt), shops) << attempt;
}

TEST_F(ApiKeyFile, reading_again_takes_the_new_keys_and_keeps_what_was_used) {
  const auto keys = this->keys();
  const Caller before = *keys->identify("Bearer shop-key");
  before.account->charge(10, 0, Clock::now());
  write(R"({"keys": [{"name": "shop", "key": "new-key", "role": "admin"}, {"name": "third", "key": "third-key"}]})");
  keys->reload();
  EXPECT_FALSE(keys->identify("Bearer shop-key"));
  EXPECT_FALSE(keys->identify("Bearer bank-key"));
  const auto after = keys->identify("Bearer new-key");
  ASSERT_TRUE(after);
  EXPECT_EQ(after->account, before.account);
  EXPECT_EQ(after->tenant.id, before.tenant.id);
  EXPECT_EQ(after->role, KeyRole::admin);
  EXPECT_EQ(keys->counts()[0].n_prompt_tokens, 10);
  EXPECT_TRUE(keys->identify("Bearer third-key"));
}

TEST_F(ApiKeyFile, a_bad_file_leaves_the_keys_as_they_are) {
  const auto keys = this->keys();
  for (const std::string bad : {"", "{", R"({"keys": []})", R"({"keys": [{"name": "x", "key": "y", "more": 1}]})"}) {
    write(bad);
    keys->reload();
    EXPECT_TRUE(keys->identify("Bearer shop-key")) << bad;
    EXPECT_FALSE(keys->identify("Bearer y")) << bad;
  }
}

TEST(KeyAccount, refuses_what_is_over_a_quota_and_says_when_to_come_back) {
  KeyAccount account("shop", 1);
  Clock::time_point now{seconds(1000)};
  account.set_quotas({.requests_per_minute = 2, .tokens_per_minute = 600, .concurrent_requests = 3}, now);
  EXPECT_FALSE(account.begin(now));
  EXPECT_FALSE(account.begin(now));
  const auto refused = account.begin(now);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->body,
            R"({"error":{"message":"the key 'shop' has reached its limit of 2 requests per minute; try again in 30 s",)"
            R"("type":"RateLimitError","param":null,"code":429}})");
  EXPECT_EQ(refused->headers.back(), (std::pair<std::string, std::string>("Retry-After", "30")));
  now += seconds(60);
  EXPECT_FALSE(account.begin(now));
  EXPECT_NE(account.refuse(now)->body.find("3 concurrent requests"), std::string::npos);
  account.end();
  account.charge(1000, 199, now);
  EXPECT_NE(account.refuse(now)->body.find("600 tokens per minute; try again in 60 s"), std::string::npos)
      << "what was used beyond the limit comes back first";
  now += seconds(60);
  EXPECT_FALSE(account.refuse(now));
  EXPECT_EQ(account.counts().n_refused, 3);
  EXPECT_EQ(account.counts().n_requests, 3);
  EXPECT_EQ(account.counts().n_running, 2);
}

TEST(ApiKeys, counts_many_keys_together) {
  std::vector<std::string> flags;
  for (std::size_t i = 0; i < kMaxCountedKeys + 50; ++i) flags.push_back("key" + std::to_string(i));
  const auto keys = *ApiKeys::create({flags, {}});
  for (const std::string& key : flags) keys->identify("Bearer " + key)->account->charge(1, 2, Clock::now());
  const std::vector<KeyCounts> counts = keys->counts();
  ASSERT_EQ(counts.size(), kMaxCountedKeys + 1);
  EXPECT_EQ(counts.back().name, "other");
  EXPECT_EQ(counts.back().n_prompt_tokens, 50);
  EXPECT_EQ(counts.back().n_generated_tokens, 100);
}

std::int64_t cached_tokens(const RawResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<std::int64_t>();
}

TEST_F(ApiKeyFile, one_keys_prompts_are_not_visible_to_another_and_registered_prefixes_are_shared) {
  write(kKeys.substr(0, kKeys.size() - 2) + R"(, {"name": "third", "key": "third-key"}]})");
  const ServerFixture fixture(options());
  const std::string own = R"({"prompt": ")" + std::string(100, 'A') + R"(", "max_tokens": 1})";
  EXPECT_EQ(cached_tokens(fixture.post("/v1/completions", own, bearer("shop-key"))), 0);
  EXPECT_EQ(cached_tokens(fixture.post("/v1/completions", own, bearer("shop-key"))), 96);
  EXPECT_EQ(cached_tokens(fixture.post("/v1/completions", own, bearer("bank-key"))), 0);
  const std::string named = R"({"messages": [{"role": "user", "content": "hi"}], "prefix": "shop", "max_tokens": 1})";
  const std::int64_t n_shared = cached_tokens(fixture.post("/v1/chat/completions", named, bearer("shop-key")));
  EXPECT_GT(n_shared, 32);
  EXPECT_EQ(cached_tokens(fixture.post("/v1/chat/completions", named, bearer("bank-key"))), n_shared);
  const std::string unnamed = R"({"messages": [{"role": "system", "content": ")" + std::string(kShopText) +
                              R"("}, {"role": "user", "content": "hi"}], "max_tokens": 1})";
  EXPECT_EQ(cached_tokens(fixture.post("/v1/chat/completions", unnamed, bearer("third-key"))), n_shared)
      << "a prompt that begins with a registered prefix shares it without naming it";
}

TEST_F(ApiKeyFile, one_keys_grammars_are_not_compiled_for_another) {
  write(R"({"keys": [{"name": "shop", "key": "shop-key"}, {"name": "bank", "key": "bank-key"},
                     {"name": "branch", "key": "branch-key", "cache_salt": "group"},
                     {"name": "office", "key": "office-key", "cache_salt": "group"}]})");
  const ServerFixture fixture(options());
  const std::string schema = R"({"prompt": "AB", "max_tokens": 2, "structured_outputs": {"json": {"enum": [1, 2]}})";
  const auto n_compiled_after = [&](std::string_view key, std::string_view more) {
    EXPECT_EQ(fixture.post("/v1/completions", schema + std::string(more) + "}", bearer(key)).status, 200);
    const std::string page = fixture.get("/metrics").body;
    const std::size_t line = page.find("baton:grammar_cache_misses_total{");
    return std::stoi(page.substr(page.find("} ", line) + 2));
  };
  EXPECT_EQ(n_compiled_after("shop-key", ""), 1);
  EXPECT_EQ(n_compiled_after("shop-key", ""), 1) << "of one key";
  EXPECT_EQ(n_compiled_after("bank-key", ""), 2) << "of another key";
  EXPECT_EQ(n_compiled_after("branch-key", ""), 3);
  EXPECT_EQ(n_compiled_after("office-key", ""), 3) << "of keys that share a part of the cache";
  EXPECT_EQ(n_compiled_after("office-key", R"(, "cache_salt": "own")"), 4) << "of a request with a salt of its own";
}

TEST_F(ApiKeyFile, roles_and_quotas_hold_over_http) {
  write(R"({"keys": [{"name": "shop", "key": "shop-key", "requests_per_minute": 2},
                     {"name": "bank", "key": "bank-key", "role": "admin", "pinned_blocks": 3}]})");
  const ServerFixture fixture(options());
  const std::string prompt = R"({"prompt": "abcdef", "max_tokens": 4, "ignore_eos": true})";
  EXPECT_EQ(fixture.post("/v1/completions", prompt).status, 401);
  const std::string prefix = R"({"id": "bank", "text": "Lends umbrellas when it rains."})";
  const RawResponse forbidden = fixture.post("/v1/prefixes", prefix, bearer("shop-key"));
  EXPECT_EQ(forbidden.status, 403);
  EXPECT_EQ(parsed(forbidden.body)["error"]["type"], "PermissionDeniedError");
  EXPECT_EQ(fixture.client().get("/v1/prefixes").status, 401);
  EXPECT_EQ(fixture.post("/v1/completions", prompt, bearer("shop-key")).status, 200);
  EXPECT_EQ(fixture.post("/v1/completions", prompt, bearer("shop-key")).status, 200);
  const RawResponse limited = fixture.post("/v1/completions", prompt, bearer("shop-key"));
  EXPECT_EQ(limited.status, 429);
  EXPECT_TRUE(limited.has("Retry-After: 30") || limited.has("Retry-After: 29")) << limited.head;
  EXPECT_EQ(fixture.post("/v1/completions", prompt, bearer("bank-key")).status, 200) << "each key has its own quota";
  const std::string page = fixture.get("/metrics").body;
  const std::string label = R"({model_name="demo",engine="0",key="shop"} )";
  EXPECT_NE(page.find("baton:key_requests_total" + label + "2\n"), std::string::npos);
  EXPECT_NE(page.find("baton:key_prompt_tokens_total" + label + "12\n"), std::string::npos) << page;
  EXPECT_NE(page.find("baton:key_generation_tokens_total" + label + "8\n"), std::string::npos);
  EXPECT_NE(page.find("baton:key_refusals_total" + label + "1\n"), std::string::npos);
  EXPECT_NE(page.find("baton:key_requests_running" + label + "0\n"), std::string::npos);

  EXPECT_EQ(fixture.post("/v1/prefixes", prefix, bearer("bank-key")).status, 200);
  const RawResponse full = fixture.post(
      "/v1/prefixes", R"({"id": "second", "text": "Also sells very large umbrellas, in all colours."})", bearer("bank-key"));
  EXPECT_EQ(full.status, 400);
  EXPECT_NE(full.body.find("the key 'bank' has pinned"), std::string::npos) << full.body;
}

TEST_F(ApiKeyFile, a_concurrent_request_too_many_is_refused_and_its_place_comes_back) {
  write(R"({"keys": [{"name": "shop", "key": "shop-key", "concurrent_requests": 1}]})");
  HeldServer fixture(options());
  const std::string endless = R"({"prompt": "AB", "max_tokens": 1500, "ignore_eos": true, "stream": true})";
  RawClient first = fixture.client();
  first.send_post("/v1/completions", endless, bearer("shop-key"));
  fixture.generate();
  const std::string prompt = R"({"prompt": "abcdef", "max_tokens": 1})";
  EXPECT_EQ(fixture.post("/v1/completions", prompt, bearer("shop-key")).status, 429);
  EXPECT_EQ(fixture.get("/health").status, 200);
  first.close();
  fixture.release();
  fixture.wait_until([&] { return fixture.post("/v1/completions", prompt, bearer("shop-key")).status == 200; });
  for (int i = 0; i < 50; ++i)
    ASSERT_EQ(fixture.post("/v1/completions", prompt, bearer("shop-key")).status, 200)
        << "one after another is not two at once";
}

TEST_F(ApiKeyFile, a_signal_reads_the_file_again) {
  const ServerFixture fixture(options());
  EXPECT_EQ(fixture.client().get("/v1/models").status, 401);
  const auto status = [&](std::string_view key) { return fixture.post("/tokenize", R"({"prompt": "a"})", bearer(key)).status; };
  EXPECT_EQ(status("shop-key"), 200);
  write(R"({"keys": [{"name": "shop", "key": "other-key"}]})");
  EXPECT_EQ(status("other-key"), 401);
  std::raise(SIGHUP);
  fixture.wait_until([&] { return status("other-key") == 200; });
  EXPECT_EQ(status("shop-key"), 401);
  write("not JSON");
  std::raise(SIGHUP);
  std::raise(SIGHUP);
  EXPECT_EQ(status("other-key"), 200);
}

TEST_F(ApiKeyFile, is_read_again_however_much_work_of_clients_waits) {
  ServerOptions impatient = options();
  impatient.step_timeout_ms = 50;
  const ServerFixture fixture(std::move(impatient));
  const auto status = [&] { return fixture.post("/v1/embeddings", "{}", bearer("shop-key")).status; };
  const auto hangs = [&](std::string_view thread) {
    ServerFixture::wait_until([&] { return fixture.get("/health").body.find(thread) != std::string::npos; });
  };
  RawClient long_text = fixture.client(), text = fixture.client(), page = fixture.client();
  {
    const PrefixesHeld held(fixture.server->prefixes());
    const std::string prompt(TextQueue::kLongBytes, 'x');
    long_text.send_post("/v1/completions", R"({"prefix": "shop", "prompt": ")" + prompt + "\"}", bearer("shop-key"));
    hangs("text-long");
    text.send_post("/v1/completions", R"({"prefix": "shop", "prompt": "x"})", bearer("shop-key"));
    hangs("text-short");
    page.send("GET /v1/models HTTP/1.1\r\nHost: h\r\n" + bearer("shop-key") + "\r\n");
    hangs("pages");
    EXPECT_EQ(status(), 501) << "no model of embeddings, but a known key";
    write(R"({"keys": [{"name": "shop", "key": "other-key"}]})");
    std::raise(SIGHUP);
    ServerFixture::wait_until([&] { return status() == 401; });
  }
}

}  // namespace
}  // namespace baton
