/// Finding models: folders, the layout of the cache, and downloads from a server on loopback.
#include "io/hub.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/http_server.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

/// The files that the test hub serves for the model org/tiny.
class FakeHub {
 public:
  std::map<std::string, std::string> files;
  std::string token;                          ///< required if not empty
  std::size_t cut_after = std::string::npos;  ///< of the first reply with a body of weights
  bool ignores_range = false;

  test::ServerReply operator()(const test::ServerRequest& request) {
    if (!token.empty() && request.head.find("Authorization: Bearer " + token + "\r\n") == std::string::npos)
      return {.status = 401};
    if (request.target.starts_with("/api/models/org/tiny/revision/")) {
      if (!request.target.ends_with("/main") && !request.target.ends_with("/refs%2Fpr%2F1")) return {.status = 404};
      std::string list;
      for (const auto& [name, bytes] : files) list += (list.empty() ? "" : ",") + ("{\"rfilename\":\"" + name + "\"}");
      return {.body = std::string("{\"sha\":\"") + kCommit + "\",\"siblings\":[" + list + "]}"};
    }
    const std::string prefix = std::string("/org/tiny/resolve/") + kCommit + "/";
    const bool is_storage = request.target.starts_with("/storage/");
    if (!request.target.starts_with(prefix) && !is_storage) return {.status = 404};
    const std::string name = request.target.substr(is_storage ? 9 : prefix.size());
    if (!files.contains(name)) return {.status = 404};
    const std::string& bytes = files[name];
    if (name.ends_with(".safetensors") && !is_storage)  // as for large files: stored on another server
      return {.status = 302,
              .headers = "Location: /storage/" + name + "\r\nX-Linked-Etag: \"etag-" + name +
                         "\"\r\nX-Linked-Size: " + std::to_string(bytes.size()) + "\r\n"};
    test::ServerReply reply{.headers = "ETag: W/\"etag-" + name + "\"\r\n", .body = bytes};
    if (const std::size_t range = request.head.find("Range: bytes="); range != std::string::npos && !ignores_range) {
      reply.status = 206;
      const std::size_t begin = std::stoull(request.head.substr(range + 13));
      reply.headers += "Content-Range: bytes " + std::to_string(begin) + "-" + std::to_string(bytes.size() - 1) + "/" +
                       std::to_string(bytes.size()) + "\r\n";
      reply.body = bytes.substr(begin);
    }
    if (name.ends_with(".safetensors") && request.method == "GET")
      reply.cut_after = std::exchange(cut_after, std::string::npos);
    return reply;
  }
};

class Hub : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "hub");
    for (std::size_t i = 0; i < 300'000; ++i) weights_ += static_cast<char>(i * 31 >> 3);
    hub_.files = {
        {"config.json", "{\"a\":1}"}, {"tokenizer.json", "{}"}, {"model.safetensors", weights_}, {"README.md", "not wanted"}};
    // the machine's proxies must not be used for loopback
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}) ::unsetenv(name);
  }
  void TearDown() override { fs::remove_all(folder_); }

  HubOptions options(std::string_view endpoint) const {
    return {.cache = folder_ / "hub", .endpoint = std::string(endpoint), .token = "", .is_offline = false};
  }
  HubOptions offline() const { return {.cache = folder_ / "hub", .endpoint = "", .token = "", .is_offline = true}; }
  fs::path snapshot() const { return folder_ / "hub/models--org--tiny/snapshots" / kCommit; }
  void put(const fs::path& path, std::string_view bytes) const {
    fs::create_directories(path.parent_path());
    ASSERT_TRUE(write_file(path, bytes));
  }
  static std::string message(const Result<fs::path>& found) { return found ? "no error" : found.error().message; }

  const fs::path folder_ = fs::path(testing::TempDir()) / "baton_hub_test";
  std::string weights_;
  FakeHub hub_;
};

TEST_F(Hub, a_folder_is_its_own_model) {
  EXPECT_EQ(find_model(folder_.string(), "main", offline(), {}).value(), folder_);
  EXPECT_EQ(message(find_model("/no/such/folder", "main", offline(), {})),
            "there is no folder /no/such/folder, and it is not a model's name (ORG/NAME) either");
}

TEST_F(Hub, a_name_is_looked_up_in_the_cache_through_chains_of_links) {
  const fs::path repository = folder_ / "hub/models--org--tiny";
  put(repository / "refs/main", std::string(kCommit) + "\n");
  put(folder_ / "store/real", "{}");
  put(repository / "blobs/weights", "x");
  fs::create_symlink(folder_ / "store/real", repository / "blobs/config");
  fs::create_directories(snapshot());
  fs::create_symlink("../../blobs/config", snapshot() / "config.json");
  fs::create_symlink("../../blobs/weights", snapshot() / "model.safetensors");
  EXPECT_EQ(find_model("org/tiny", "main", offline(), {}).value(), snapshot());
  EXPECT_EQ(find_model("org/tiny", kCommit, offline(), {}).value(), snapshot());
  EXPECT_FALSE(find_model("org/tiny", "other", offline(), {}));
  fs::remove(folder_ / "store/real");
  EXPECT_EQ(message(find_model("org/tiny", "main", offline(), {})),
            "model org/tiny (revision main) was not found: there is no such folder, no whole copy in the cache " +
                (folder_ / "hub").string() + ", and HF_HUB_OFFLINE forbids to ask the network");
}

TEST_F(Hub, a_sharded_model_is_whole_when_every_shard_is_there) {
  put(folder_ / "hub/models--org--tiny/refs/main", kCommit);
  put(snapshot() / "config.json", "{}");
  put(snapshot() / "model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  put(snapshot() / "1.safetensors", "x");
  EXPECT_FALSE(find_model("org/tiny", "main", offline(), {}));
  put(snapshot() / "2.safetensors", "x");
  EXPECT_EQ(find_model("org/tiny", "main", offline(), {}).value(), snapshot());
}

TEST_F(Hub, names_that_lead_out_of_the_cache_are_refused) {
  for (const char* name : {"../x", "a/../b", "a/b/c", ".hidden", "", "a//b", "a b"})
    EXPECT_FALSE(find_model(name, "main", offline(), {})) << name;
  for (const char* revision : {"../../x", "", "/etc", "a b"})
    EXPECT_FALSE(find_model("org/tiny", revision, offline(), {})) << revision;
}

TEST_F(Hub, downloads_into_the_cache_and_then_needs_no_network) {
  hub_.token = "secret";
  {
    test::HttpServer server(hub_);
    HubOptions with_token = options(server.url());
    with_token.token = "secret";
    std::map<std::string, std::uint64_t> received;
    const auto found =
        find_model("org/tiny", "main", with_token, [&](std::string_view file, std::uint64_t now, std::uint64_t total) {
          EXPECT_LE(now, total);
          EXPECT_GE(now, received[std::string(file)]);
          received[std::string(file)] = now;
        });
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, snapshot());
    EXPECT_EQ(received, (std::map<std::string, std::uint64_t>{
                            {"config.json", 7}, {"tokenizer.json", 2}, {"model.safetensors", weights_.size()}}));
  }
  EXPECT_EQ(find_model("org/tiny", "main", offline(), {}).value(), snapshot());
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
  EXPECT_EQ(fs::read_symlink(snapshot() / "config.json"), "../../blobs/etag-config.json");
  EXPECT_EQ(read_file(folder_ / "hub/models--org--tiny/refs/main").value(), kCommit);
  EXPECT_FALSE(fs::exists(snapshot() / "README.md"));
}

TEST_F(Hub, goes_on_after_a_broken_connection_where_it_stopped) {
  hub_.cut_after = 100'000;
  test::HttpServer server(std::ref(hub_));
  ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
  const auto requests = server.requests();
  EXPECT_TRUE(std::any_of(requests.begin(), requests.end(),
                          [](const auto& request) { return request.head.find("Range: bytes=100000-") != std::string::npos; }));
}

TEST_F(Hub, starts_again_where_the_server_cannot_go_on) {
  hub_.cut_after = 100'000;
  hub_.ignores_range = true;
  test::HttpServer server(std::ref(hub_));
  ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
}

TEST_F(Hub, goes_on_with_what_an_earlier_run_left) {
  put(folder_ / "hub/models--org--tiny/blobs/etag-model.safetensors.incomplete", weights_.substr(0, 200'000));
  test::HttpServer server(hub_);
  std::uint64_t least = weights_.size();
  ASSERT_TRUE(
      find_model("org/tiny", "refs/pr/1", options(server.url()), [&](std::string_view file, std::uint64_t now, std::uint64_t) {
        if (file == "model.safetensors") least = std::min(least, now);
      }));
  EXPECT_GT(least, 200'000u);
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
  EXPECT_EQ(find_model("org/tiny", "refs/pr/1", offline(), {}).value(), snapshot());
}

TEST_F(Hub, downloads_the_shards_of_an_index) {
  hub_.files.erase("model.safetensors");
  hub_.files["model.safetensors.index.json"] = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})";
  hub_.files["1.safetensors"] = "one";
  hub_.files["2.safetensors"] = "two";
  test::HttpServer server(hub_);
  ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
  EXPECT_EQ(read_file(snapshot() / "2.safetensors").value(), "two");
}

TEST_F(Hub, weights_are_left_where_they_are_not_wanted_and_come_later) {
  hub_.files["tokenizer_config.json"] = "{}";
  test::HttpServer server(hub_);
  HubOptions text_only = options(server.url());
  text_only.wants_weights = false;
  EXPECT_EQ(find_model("org/tiny", "main", text_only, {}).value(), snapshot());
  EXPECT_TRUE(fs::exists(snapshot() / "tokenizer_config.json"));
  EXPECT_FALSE(fs::exists(snapshot() / "model.safetensors"));
  EXPECT_FALSE(find_model("org/tiny", "main", offline(), {}));
  HubOptions offline_text = offline();
  offline_text.wants_weights = false;
  EXPECT_EQ(find_model("org/tiny", "main", offline_text, {}).value(), snapshot());
  EXPECT_EQ(find_model("org/tiny", "main", options(server.url()), {}).value(), snapshot());
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
}

TEST_F(Hub, errors_name_what_was_tried) {
  const std::string tried =
      "model org/tiny (revision main) was not found: there is no such folder, no whole copy in the cache " +
      (folder_ / "hub").string() + ", and it could not be downloaded: ";
  {
    FakeHub gated = hub_;
    gated.token = "secret";
    test::HttpServer server(gated);
    EXPECT_EQ(message(find_model("org/tiny", "main", options(server.url()), {})),
              tried + server.url() +
                  "/api/models/org/tiny/revision/main: HTTP status 401 (private or gated: set HF_TOKEN, accept the model's "
                  "conditions)");
  }
  {
    FakeHub without_weights = hub_;
    without_weights.files.erase("model.safetensors");
    test::HttpServer server(without_weights);
    EXPECT_EQ(message(find_model("org/tiny", "main", options(server.url()), {})),
              tried + "org/tiny has no model.safetensors.index.json at " + server.url() +
                  "; weights must be in the safetensors format");
    EXPECT_NE(message(find_model("org/tiny", "v2", options(server.url()), {}))
                  .find("HTTP status 404 (there is no such model or revision)"),
              std::string::npos);
    EXPECT_NE(message(find_model("org/other", "main", options(server.url()), {})).find("HTTP status 404"), std::string::npos);
  }
  const std::string closed = "http://127.0.0.1:1";
  EXPECT_TRUE(message(find_model("org/tiny", "main", options(closed), {}))
                  .starts_with(tried + closed + "/api/models/org/tiny/revision/main: Failed to connect"))
      << message(find_model("org/tiny", "main", options(closed), {}));
}

TEST_F(Hub, a_damaged_answer_is_an_error) {
  for (const char* body : {"", "[]", "{\"sha\":\"../..\",\"siblings\":[]}", "{\"sha\":1}"}) {
    test::HttpServer server([&](const test::ServerRequest&) { return test::ServerReply{.body = body}; });
    EXPECT_FALSE(find_model("org/tiny", "main", options(server.url()), {})) << body;
  }
  hub_.files["model.safetensors.index.json"] = R"({"weight_map":{"a":"../../../x"}})";
  hub_.files.erase("model.safetensors");
  test::HttpServer server(hub_);
  EXPECT_NE(message(find_model("org/tiny", "main", options(server.url()), {})).find("the shard of 'a' must be a file name"),
            std::string::npos);
}

TEST(HubOptions, follow_the_environment) {
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})
    ::unsetenv(name);
  ::setenv("HOME", "/home/x", 1);
  EXPECT_EQ(hub_options_from_environment().cache, "/home/x/.cache/huggingface/hub");
  EXPECT_EQ(hub_options_from_environment().endpoint, "https://huggingface.co");
  EXPECT_FALSE(hub_options_from_environment().is_offline);
  ::setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(hub_options_from_environment().cache, "/hf/hub");
  ::setenv("HF_HUB_CACHE", "/cache", 1);
  ::setenv("HF_ENDPOINT", "http://mirror/", 1);
  ::setenv("HF_HUB_OFFLINE", "True", 1);
  EXPECT_EQ(hub_options_from_environment().cache, "/cache");
  EXPECT_EQ(hub_options_from_environment().endpoint, "http://mirror");
  EXPECT_TRUE(hub_options_from_environment().is_offline);
}

}  // namespace
}  // namespace baton
