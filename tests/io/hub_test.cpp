/// Finding models: folders, the layout of the cache, and downloads from a server on loopback.
#include "io/hub.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "io/checksum.h"
#include "io/file.h"
#include "support/fake_hub.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

using test::FakeHub;

constexpr const char* kCommit = test::kHubCommit;

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

  const fs::path folder_ = fs::path(::testing::TempDir()) / "baton_hub_test";
  std::string weights_;
  FakeHub hub_;
};

TEST_F(Hub, a_folder_is_its_own_model) {
  EXPECT_EQ(find_model(folder_.string(), "main", offline(), {}).value(), folder_);
  EXPECT_EQ(message(find_model("/no/such/folder", "main", offline(), {})),
            "there is no folder /no/such/folder, and it is not a model's name (ORG/NAME) either");
}

TEST_F(Hub, weights_that_are_not_read_are_named_wherever_they_are) {
  const auto found = [&](const fs::path& model) { return message(find_model(model.string(), "main", offline(), {})); };
  put(folder_ / "gguf/tiny.Q8_0.gguf", "GGUF");
  EXPECT_TRUE(found(folder_ / "gguf").starts_with((folder_ / "gguf").string() + " has no config.json; tiny.Q8_0.gguf is GGUF"));
  EXPECT_TRUE(found(folder_ / "gguf/tiny.Q8_0.gguf").find("is a file; a model is a folder with config.json") !=
              std::string::npos);
  EXPECT_NE(found(folder_ / "gguf/tiny.Q8_0.gguf").find("is GGUF, llama.cpp's format"), std::string::npos);
  EXPECT_NE(found("org/tiny/tiny.Q8_0.gguf").find("either; org/tiny/tiny.Q8_0.gguf is GGUF"), std::string::npos);
  HubOptions text_only = offline();
  text_only.wants_weights = false;
  EXPECT_NE(message(find_model((folder_ / "gguf").string(), "main", text_only, {})).find("is GGUF"), std::string::npos);
  put(folder_ / "gguf/tokenizer.json", "{}");
  EXPECT_EQ(find_model((folder_ / "gguf").string(), "main", text_only, {}).value(), folder_ / "gguf");
  put(folder_ / "bin/pytorch_model.bin", "x");
  EXPECT_TRUE(found(folder_ / "bin").ends_with("save_pretrained writes a model as safetensors"));
  put(folder_ / "bin/config.json", "{}");
  EXPECT_EQ(found(folder_ / "bin"), "no error") << "dummy weights need the configuration only";

  put(folder_ / "hub/models--org--tiny/refs/main", kCommit);
  put(snapshot() / "config.json", "{}");
  put(snapshot() / "pytorch_model.bin", "x");
  EXPECT_NE(found("org/tiny").find("forbids to ask the network; of the cached files pytorch_model.bin is a pickle of PyTorch"),
            std::string::npos)
      << found("org/tiny");
  for (const char* file : {"tiny.Q4_K_M.gguf", "pytorch_model.bin"}) {
    FakeHub other = hub_;
    other.files.erase("model.safetensors");
    other.files[file] = "x";
    test::HttpServer server(other);
    const std::string said = message(pull_model("org/tiny", "main", options(server.url()), {}));
    EXPECT_NE(said.find("org/tiny has no model.safetensors.index.json at " + server.url() + "; " + file + " is "),
              std::string::npos)
        << said;
  }
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
    const auto found = find_model("org/tiny", "main", with_token, [&](const HubTransfer& transfer) {
      EXPECT_LE(transfer.file_received, transfer.file_bytes);
      EXPECT_LE(transfer.done_bytes + transfer.file_bytes, transfer.total_bytes);
      EXPECT_EQ(transfer.n_files, 3);
      EXPECT_EQ(transfer.total_bytes, 9 + weights_.size());
      EXPECT_GE(transfer.file_received, received[std::string(transfer.file)]);
      received[std::string(transfer.file)] = transfer.file_received;
    });
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, snapshot());
    EXPECT_EQ(received, (std::map<std::string, std::uint64_t>{
                            {"config.json", 7}, {"tokenizer.json", 2}, {"model.safetensors", weights_.size()}}));
  }
  EXPECT_EQ(find_model("org/tiny", "main", offline(), {}).value(), snapshot());
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
  EXPECT_TRUE(fs::read_symlink(snapshot() / "config.json").string().starts_with("../../blobs/etag-config.json-"));
  EXPECT_EQ(read_file(folder_ / "hub/models--org--tiny/refs/main").value(), kCommit);
  EXPECT_FALSE(fs::exists(snapshot() / "README.md"));
}

TEST_F(Hub, continues_after_a_broken_connection_where_it_stopped) {
  hub_.cut_after = 100'000;
  test::HttpServer server(std::ref(hub_));
  ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
  const auto requests = server.requests();
  EXPECT_TRUE(std::any_of(requests.begin(), requests.end(),
                          [](const auto& request) { return request.head.find("Range: bytes=100000-") != std::string::npos; }));
}

TEST_F(Hub, starts_again_where_the_server_cannot_continue) {
  hub_.cut_after = 100'000;
  hub_.ignores_range = true;
  test::HttpServer server(std::ref(hub_));
  ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
}

TEST_F(Hub, continues_with_what_an_earlier_run_left) {
  put(folder_ / "weights", weights_);
  const std::string sha = sha256_of_file(folder_ / "weights").value();
  hub_.etags = {{"model.safetensors", sha}};
  put(folder_ / "hub/models--org--tiny/blobs" / (sha + ".incomplete"), weights_.substr(0, 200'000));
  test::HttpServer server(hub_);
  std::uint64_t least = weights_.size();
  ASSERT_TRUE(find_model("org/tiny", "refs/pr/1", options(server.url()), [&](const HubTransfer& transfer) {
    if (transfer.file == "model.safetensors") least = std::min(least, transfer.file_received);
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

TEST_F(Hub, only_files_that_baton_reads_are_downloaded) {
  for (const char* name :
       {"chat_template.jinja", "additional_chat_templates/rag.jinja", "additional_chat_templates/notes.md", "tekken.json",
        "tiktoken.model", "pytorch_model.bin", "consolidated.safetensors", "original/config.json"})
    hub_.files[name] = name;
  test::HttpServer server(hub_);
  ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(snapshot()))
    if (fs::is_regular_file(entry.path())) names.push_back(entry.path().lexically_relative(snapshot()).string());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"additional_chat_templates/rag.jinja", "chat_template.jinja", "config.json",
                                             "model.safetensors", "tekken.json", "tiktoken.model", "tokenizer.json"}));
  EXPECT_EQ(read_file(snapshot() / "additional_chat_templates/rag.jinja").value(), "additional_chat_templates/rag.jinja");
}

TEST_F(Hub, a_vocabulary_is_downloaded_where_there_is_no_other_tokenizer) {
  for (const char* name : {"vocab.json", "merges.txt"}) hub_.files[name] = name;
  {
    test::HttpServer server(hub_);
    ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
    EXPECT_FALSE(fs::exists(snapshot() / "vocab.json")) << "tokenizer.json is there";
  }
  hub_.files.erase("tokenizer.json");
  fs::remove_all(folder_);
  test::HttpServer server(hub_);
  ASSERT_TRUE(find_model("org/tiny", "main", options(server.url()), {}));
  EXPECT_EQ(read_file(snapshot() / "vocab.json").value(), "vocab.json");
  EXPECT_EQ(read_file(snapshot() / "merges.txt").value(), "merges.txt");
  HubOptions offline_text = offline();
  offline_text.wants_weights = false;
  EXPECT_EQ(find_model("org/tiny", "main", offline_text, {}).value(), snapshot());
}

TEST_F(Hub, a_file_that_does_not_have_its_checksum_is_refused_and_removed) {
  const fs::path weights = folder_ / "weights";
  put(weights, weights_);
  const std::string sha = sha256_of_file(weights).value();
  hub_.etags = {{"model.safetensors", sha}, {"tokenizer.json", "9e26dfeeb6e641a33dae4961196235bdb965b21b"}};
  {
    FakeHub damaged = hub_;
    damaged.files["model.safetensors"][1000] ^= 1;
    test::HttpServer server(damaged);
    const std::string said = message(find_model("org/tiny", "main", options(server.url()), {}));
    EXPECT_NE(said.find(sha + " was announced; the file was removed: try again"), std::string::npos) << said;
    EXPECT_FALSE(fs::exists(folder_ / "hub/models--org--tiny/blobs" / (sha + ".incomplete")));
    EXPECT_FALSE(fs::exists(snapshot() / "model.safetensors"));
  }
  test::HttpServer server(hub_);
  EXPECT_EQ(message(find_model("org/tiny", "main", options(server.url()), {})), "no error");
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
  EXPECT_TRUE(fs::exists(folder_ / "hub/.locks/models--org--tiny" / (sha + ".lock")));
  hub_.files["tokenizer.json"] = "[]";
  fs::remove_all(folder_ / "hub");
  test::HttpServer other(hub_);
  EXPECT_NE(message(find_model("org/tiny", "main", options(other.url()), {})).find("the git blob of"), std::string::npos);
}

TEST_F(Hub, files_with_one_etag_that_is_no_checksum_stay_several_and_are_said_not_to_be_verified) {
  hub_.etags = {{"config.json", "same"}, {"tokenizer.json", "same"}, {"model.safetensors", "same"}};
  hub_.files["generation_config.json"] = "{\"b\":2}";  // as long as config.json
  hub_.etags["generation_config.json"] = "same";
  test::HttpServer server(hub_);
  testing::internal::CaptureStderr();
  EXPECT_EQ(message(find_model("org/tiny", "main", options(server.url()), {})), "no error");
  const std::string said = testing::internal::GetCapturedStderr();
  for (const auto& [name, bytes] : hub_.files) {
    if (name == "README.md") continue;
    EXPECT_EQ(read_file(snapshot() / name).value(), bytes) << name;
    EXPECT_NE(said.find("event=download_not_verified file=" + name), std::string::npos) << said;
  }
}

TEST_F(Hub, files_with_one_checksum_are_kept_once_and_verified_in_silence) {
  put(folder_ / "config", hub_.files["config.json"]);
  const std::string blob = git_blob_of_file(folder_ / "config").value();
  hub_.files["generation_config.json"] = hub_.files["config.json"];
  hub_.files.erase("model.safetensors");
  hub_.files.erase("tokenizer.json");
  hub_.etags = {{"config.json", blob}, {"generation_config.json", blob}};
  test::HttpServer server(hub_);
  HubOptions text_only = options(server.url());
  text_only.wants_weights = false;
  testing::internal::CaptureStderr();
  EXPECT_EQ(message(find_model("org/tiny", "main", text_only, {})), "no error");
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("not_verified"), std::string::npos);
  EXPECT_EQ(fs::read_symlink(snapshot() / "config.json"), "../../blobs/" + blob);
  EXPECT_EQ(fs::read_symlink(snapshot() / "generation_config.json"), "../../blobs/" + blob);
}

TEST_F(Hub, contents_of_another_size_than_announced_are_not_taken_for_the_file) {
  put(folder_ / "weights", weights_);
  const std::string sha = sha256_of_file(folder_ / "weights").value();
  hub_.etags = {{"model.safetensors", sha}};
  put(folder_ / "hub/models--org--tiny/blobs" / sha, "short");
  test::HttpServer server(hub_);
  const std::string said = message(find_model("org/tiny", "main", options(server.url()), {}));
  EXPECT_NE(said.find("the endpoint announces 300000 bytes with the etag " + sha), std::string::npos) << said;
}

// In a cache that several people write to, a link could lead a download into the folders of one of them.
TEST_F(Hub, nothing_is_written_through_links_in_the_cache) {
  const fs::path victim = folder_ / "victim", repository = folder_ / "hub/models--org--tiny";
  put(victim / "file", "precious");
  put(folder_ / "weights", weights_);
  const std::string sha = sha256_of_file(folder_ / "weights").value();
  hub_.etags = {{"model.safetensors", sha}};
  test::HttpServer server(hub_);
  const auto planted = [&](const fs::path& link, const fs::path& target) {
    fs::remove_all(folder_ / "hub");
    fs::create_directories(link.parent_path());
    fs::create_symlink(target, link);
    const auto found = find_model("org/tiny", "main", options(server.url()), {});
    EXPECT_EQ(read_file(victim / "file").value(), "precious") << link;
    EXPECT_EQ(std::distance(fs::directory_iterator(victim), fs::directory_iterator()), 1) << link;
    return message(found);
  };
  const std::string of_folder = " is a link, and downloads follow no links in the cache";
  for (const fs::path& link : {repository, repository / "blobs", repository / "snapshots", snapshot(), repository / "refs",
                               folder_ / "hub/.locks", folder_ / "hub/.locks/models--org--tiny"})
    EXPECT_NE(planted(link, victim).find(link.string() + of_folder), std::string::npos) << planted(link, victim);
  for (const fs::path& target : {victim / "file", victim / "new"}) {
    const fs::path incomplete = repository / "blobs" / (sha + ".incomplete");
    EXPECT_NE(planted(incomplete, target).find(incomplete.string() + " is a link; downloads do not write through links"),
              std::string::npos);
    const fs::path lock = folder_ / "hub/.locks/models--org--tiny" / (sha + ".lock");
    EXPECT_NE(planted(lock, target).find(lock.string() + " is a link, and a lock must be a file"), std::string::npos);
  }
  // These are replaced.
  EXPECT_EQ(planted(repository / "refs/main", victim / "file"), "no error");
  EXPECT_EQ(planted(repository / "blobs" / sha, victim / "new"), "no error");
  EXPECT_EQ(planted(snapshot() / "model.safetensors", victim / "new"), "no error");
  // The cache itself may be one.
  fs::remove_all(folder_ / "hub");
  fs::create_directories(folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", folder_ / "hub");
  EXPECT_EQ(message(find_model("org/tiny", "main", options(server.url()), {})), "no error");
}

TEST_F(Hub, two_downloads_at_once_share_one_file) {
  test::HttpServer server(hub_);
  const auto find = [&] { EXPECT_EQ(message(find_model("org/tiny", "main", options(server.url()), {})), "no error"); };
  std::thread other(find);
  find();
  other.join();
  EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
  const auto requests = server.requests();
  EXPECT_EQ(std::ranges::count_if(
                requests,
                [](const auto& request) { return request.method == "GET" && request.target == "/storage/model.safetensors"; }),
            1);
}

TEST_F(Hub, pull_asks_which_commit_a_branch_stands_for_now) {
  test::HttpServer server(hub_);
  constexpr const char* kOld = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  const fs::path repository = folder_ / "hub/models--org--tiny";
  put(repository / "refs/main", kOld);
  put(repository / "snapshots" / kOld / "config.json", "{}");
  put(repository / "snapshots" / kOld / "model.safetensors", "old");
  EXPECT_EQ(find_model("org/tiny", "main", options(server.url()), {}).value(), repository / "snapshots" / kOld);
  EXPECT_EQ(pull_model("org/tiny", "main", offline(), {}).value(), repository / "snapshots" / kOld);
  EXPECT_EQ(pull_model("org/tiny", "main", options(server.url()), {}).value(), snapshot());
  EXPECT_EQ(find_model("org/tiny", "main", offline(), {}).value(), snapshot());
  const std::size_t n_requests = server.requests().size();
  EXPECT_EQ(pull_model("org/tiny", "main", options(server.url()), {}).value(), snapshot());
  EXPECT_EQ(server.requests().size(), n_requests + 1) << "nothing is missing";
  EXPECT_FALSE(pull_model("../x", "main", options(server.url()), {}));
  EXPECT_FALSE(pull_model("org/tiny", "v2", offline(), {}));
}

TEST_F(Hub, list_names_snapshots_their_sizes_and_what_they_lack) {
  EXPECT_TRUE(list_cached_models(folder_ / "none").empty());
  const fs::path cache = folder_ / "hub";
  put(cache / "models--org--tiny/refs/main", kCommit);
  put(cache / "models--org--tiny/refs/pr/1", kCommit);
  put(cache / "models--org--tiny/blobs/weights", "12345");
  put(snapshot() / "config.json", "{}");
  fs::create_symlink("../../blobs/weights", snapshot() / "model.safetensors");
  constexpr const char* kOther = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  const fs::path sharded = cache / "models--name" / "snapshots" / kOther;
  put(sharded / "config.json", "{}");
  put(sharded / "model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  put(sharded / "2.safetensors", "x");
  put(cache / "models--org--other/snapshots" / kOther / "tokenizer.json", "{}");
  put(cache / "datasets--org--data/snapshots" / kOther / "config.json", "{}");
  const std::vector<CachedModel> models = list_cached_models(cache);
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].name, "name");
  EXPECT_EQ(models[0].missing, "1 of 2 shards");
  EXPECT_TRUE(models[0].revisions.empty());
  EXPECT_EQ(models[1].name, "org/other");
  EXPECT_EQ(models[1].missing, "config.json");
  EXPECT_EQ(models[2].name, "org/tiny");
  EXPECT_EQ(models[2].missing, "");
  EXPECT_EQ(models[2].size_bytes, 7u);
  EXPECT_EQ(models[2].revisions, (std::vector<std::string>{"main", "pr/1"}));
  EXPECT_EQ(models[2].snapshot, snapshot());
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
                  "/api/models/org/tiny/revision/main: HTTP status 401 (private or gated: set HF_TOKEN or log in with `hf auth "
                  "login`, and accept the model's conditions)");
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

TEST_F(Hub, a_mirror_that_redirects_every_request_to_another_server) {
  hub_.token = "";
  test::HttpServer real(hub_);
  for (const int status : {301, 302, 307, 308}) {
    fs::remove_all(folder_ / "hub");
    test::HttpServer mirror([&](const test::ServerRequest& request) {
      return test::ServerReply{.status = status, .headers = "Location: " + real.url() + request.target + "\r\n"};
    });
    HubOptions with_token = options(mirror.url());
    with_token.token = "secret";
    const auto found = find_model("org/tiny", "main", with_token, {});
    ASSERT_TRUE(found) << status << ": " << found.error().message;
    EXPECT_EQ(read_file(snapshot() / "model.safetensors").value(), weights_);
    for (const auto& request : mirror.requests()) EXPECT_NE(request.head.find("Bearer secret"), std::string::npos);
  }
  for (const auto& request : real.requests()) EXPECT_EQ(request.head.find("secret"), std::string::npos) << request.head;
}

class HubEnvironment : public Hub {
 protected:
  void SetUp() override {
    Hub::SetUp();
    for (const char* name :
         {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HF_ENDPOINT", "HF_TOKEN",
          "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})
      ::unsetenv(name);
  }
  static std::string token() { return hub_options_from_environment().token; }
  static fs::path cache() { return hub_options_from_environment().cache; }
};

TEST_F(HubEnvironment, the_token_is_found_where_the_hubs_own_library_finds_it) {
  ::setenv("HOME", folder_.c_str(), 1);
  EXPECT_EQ(token(), "");
  put(folder_ / ".cache/huggingface/token", "saved\n");
  EXPECT_EQ(token(), "saved");
  put(folder_ / "xdg/huggingface/token", " of xdg \r\n");
  ::setenv("XDG_CACHE_HOME", (folder_ / "xdg").c_str(), 1);
  EXPECT_EQ(token(), "of xdg");
  put(folder_ / "home/token", "of home");
  ::setenv("HF_HOME", "~/home", 1);
  EXPECT_EQ(token(), "of home");
  put(folder_ / "mine", "mine");
  ::setenv("HF_TOKEN_PATH", "$HOME/mine", 1);
  EXPECT_EQ(token(), "mine");
  ::setenv("HUGGING_FACE_HUB_TOKEN", "older name", 1);
  EXPECT_EQ(token(), "older name");
  ::setenv("HF_TOKEN", "", 1);
  EXPECT_EQ(token(), "older name");
  ::setenv("HF_TOKEN", "hf_x\n", 1);
  EXPECT_EQ(token(), "hf_x");
  ::setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
  EXPECT_EQ(token(), "");
}

TEST_F(HubEnvironment, the_cache_is_found_where_the_hubs_own_library_finds_it) {
  ::setenv("HOME", "/home/x", 1);
  EXPECT_EQ(cache(), "/home/x/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(cache(), "/xdg/huggingface/hub");
  ::setenv("HF_HOME", "${XDG_CACHE_HOME}/hf$NOT_SET_", 1);
  EXPECT_EQ(cache(), "/xdg/hf$NOT_SET_/hub");
  ::setenv("HUGGINGFACE_HUB_CACHE", "~/older", 1);
  EXPECT_EQ(cache(), "/home/x/older");
  ::setenv("HF_HUB_CACHE", "~/$HOME", 1);
  EXPECT_EQ(cache(), "/home/x//home/x");
}

TEST_F(HubEnvironment, the_endpoint_and_being_offline_follow_it) {
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
