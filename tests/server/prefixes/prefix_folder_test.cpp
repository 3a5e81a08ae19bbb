/// A folder whose files are prefixes (server/prefixes/prefix_folder.h). The test decides when to look at it, and at which time.
#include "server/prefixes/prefix_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class PrefixFolderTest : public ::testing::Test {
 protected:
  PrefixFolderTest() : root_(fs::temp_directory_path() / ("baton_folder_" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(folder());
    ModelSpec spec = testing::tiny_spec();
    spec.n_vocab = kByteModelVocab;
    engine_ = testing::make_tiny_engine({.max_pinned_blocks = 10}, 256, spec);
    registry_.emplace(model_, *engine_);
    made_.emplace(folder(), OutwardLinks::refused, *registry_);
  }
  ~PrefixFolderTest() override { fs::remove_all(root_); }

  fs::path folder() const { return root_ / "prompts"; }
  void write(const std::string& name, std::string_view text) const { std::ofstream(folder() / name) << text; }
  /// Advances the time by `time`, looks, and applies all changes. Returns true if some file has changed too recently.
  bool look(milliseconds time) {
    now_ += time;
    const bool is_unsettled = made_->look(now_);
    while (registry_->run_next()) {
    }
    return is_unsettled;
  }
  /// Looks until all added and deleted files have been handled.
  void settle() {
    look(milliseconds(0));
    look(PrefixFolder::kSettleTime);
    look(PrefixFolder::kGoneTime);
  }
  /// "bank=Lends. shop=Mugs. "
  std::string served() const {
    std::string all;
    registry_->for_each([&](const Prefixes::Entry& entry) { all += entry.definition.name + "=" + entry.text + " "; });
    return all;
  }
  std::int64_t n_refused() const { return registry_->counts().n_refused_files; }

  fs::path root_;
  ServedModel model_ = byte_model();
  std::unique_ptr<Engine> engine_;
  std::optional<Prefixes> registry_;
  std::optional<PrefixFolder> made_;
  PrefixFolder::Clock::time_point now_ = PrefixFolder::Clock::now();
};

TEST_F(PrefixFolderTest, registers_each_file_under_its_name) {
  write("shop.txt", "Mugs.");
  write("bank.json", R"({"text": "Lends.", "version": "7", "ttl_seconds": 1000})");
  write("list.json", R"([{"role": "user", "content": "a"}])");
  settle();
  EXPECT_EQ(served(), "bank=Lends. list=a shop=Mugs. ");
  EXPECT_EQ(n_refused(), 0);
  const Prefixes::Use shop = registry_->find("shop");
  EXPECT_EQ(shop->definition.source, PrefixSource::folder);
  EXPECT_EQ(shop->definition.version, "15f39e82cbd6") << "what sha256sum begins with";
  EXPECT_EQ(registry_->find("bank")->definition.version, "7");
  EXPECT_TRUE(registry_->find("bank")->expires);
}

TEST_F(PrefixFolderTest, replaces_what_changes_and_removes_what_goes) {
  write("shop.txt", "Mugs.");
  write("bank.txt", "Lends.");
  settle();
  const Prefixes::Use in_use = registry_->find("shop");
  write("shop.txt", "Cups.");
  fs::remove(folder() / "bank.txt");
  settle();
  EXPECT_EQ(served(), "shop=Cups. ");
  EXPECT_EQ(in_use->text, "Mugs.") << "its user keeps it";
  const PinId pin = registry_->find("shop")->info.id;
  fs::last_write_time(folder() / "shop.txt", fs::file_time_type::clock::now() + std::chrono::hours(1));
  settle();
  EXPECT_EQ(registry_->find("shop")->info.id, pin) << "another date is no other contents";
}

TEST_F(PrefixFolderTest, a_version_of_ones_own_need_not_change_with_the_contents) {
  write("shop.json", R"({"text": "Mugs.", "version": "1"})");
  settle();
  write("shop.json", R"({"text": "Cups.", "version": "1"})");
  settle();
  EXPECT_EQ(served(), "shop=Cups. ");
  write("shop.json", R"({"text": "Jars.", "version": "1"})");
  settle();
  EXPECT_EQ(served(), "shop=Jars. ");
}

TEST_F(PrefixFolderTest, waits_until_a_file_is_left_alone) {
  look(milliseconds(0));
  write("shop.txt", "Mu");
  EXPECT_TRUE(look(milliseconds(0)));
  EXPECT_TRUE(look(PrefixFolder::kSettleTime / 2));
  write("shop.txt", "Mugs.");
  EXPECT_TRUE(look(PrefixFolder::kSettleTime / 2));
  EXPECT_TRUE(look(PrefixFolder::kSettleTime / 2));
  EXPECT_EQ(served(), "");
  EXPECT_FALSE(look(PrefixFolder::kSettleTime / 2));
  EXPECT_EQ(served(), "shop=Mugs. ");
}

TEST_F(PrefixFolderTest, a_file_that_is_put_in_the_place_of_another_is_never_gone) {
  write("shop.txt", "Mugs.");
  settle();
  const std::int64_t n_removed = registry_->n_removed();
  fs::rename(folder() / "shop.txt", folder() / "shop.txt~");  // as editors do
  look(milliseconds(10));
  look(PrefixFolder::kGoneTime / 2);
  EXPECT_EQ(served(), "shop=Mugs. ");
  write("shop.txt", "Cups.");
  settle();
  EXPECT_EQ(served(), "shop=Cups. ");
  EXPECT_EQ(registry_->n_removed(), n_removed + 1) << "replaced, not removed";
}

TEST_F(PrefixFolderTest, follows_the_links_of_a_mounted_config_map) {
  // As a kubelet writes it: shop.txt -> ..data/shop.txt, ..data -> ..1; an update replaces ..data.
  const auto version = [&](const char* name, std::string_view text) {
    fs::create_directory(folder() / name);
    write(std::string(name) + "/shop.txt", text);
    fs::create_directory_symlink(name, folder() / "..data_tmp");
    fs::rename(folder() / "..data_tmp", folder() / "..data");
  };
  version("..1", "Mugs.");
  fs::create_symlink("..data/shop.txt", folder() / "shop.txt");
  settle();
  EXPECT_EQ(served(), "shop=Mugs. ");
  version("..2", "Cups.");
  fs::remove_all(folder() / "..1");
  settle();
  EXPECT_EQ(served(), "shop=Cups. ");
  fs::remove(folder() / "shop.txt");
  settle();
  EXPECT_EQ(served(), "");
}

TEST_F(PrefixFolderTest, refuses_links_out_of_the_folder_unless_they_are_allowed) {
  std::ofstream(root_ / "secret.txt") << "Secret.";
  fs::create_directory(root_ / "prompts2");
  std::ofstream(root_ / "prompts2" / "near.txt") << "Near.";
  fs::create_symlink(root_ / "secret.txt", folder() / "far.txt");
  fs::create_symlink("../prompts2/near.txt", folder() / "near.txt");
  fs::create_directory_symlink(root_, folder() / "..up");
  fs::create_symlink("..up/secret.txt", folder() / "up.txt");
  fs::create_symlink("far.txt", folder() / "twice.txt");
  write("inside.txt", "Mugs.");
  fs::create_symlink("inside.txt", folder() / "link.txt");
  settle();
  EXPECT_EQ(served(), "inside=Mugs. link=Mugs. ");
  EXPECT_EQ(n_refused(), 4);
  // What has been served stays, and what a file becomes is looked at again.
  fs::remove(folder() / "link.txt");
  fs::create_symlink(root_ / "secret.txt", folder() / "link.txt");
  settle();
  EXPECT_EQ(served(), "inside=Mugs. link=Mugs. ");

  Prefixes others(model_, *engine_);
  PrefixFolder follows(folder(), OutwardLinks::followed, others);
  follows.look(now_);
  follows.look(now_ += PrefixFolder::kSettleTime);
  while (others.run_next()) {
  }
  EXPECT_TRUE(others.find("far"));
  EXPECT_TRUE(others.find("up"));
}

TEST_F(PrefixFolderTest, what_cannot_be_read_is_counted_and_the_last_good_contents_serve) {
  write("shop.json", R"({"text": "Mugs."})");
  settle();
  const PinId pin = registry_->find("shop")->info.id;
  write("shop.json", R"({"text": )");
  write("empty.txt", "");
  write("a b.txt", "x");
  write("notes.md", "x");
  write("robot.json", R"([{"role": "robot", "content": "a"}])");
  settle();
  EXPECT_EQ(served(), "shop=Mugs. ");
  EXPECT_EQ(n_refused(), 5);
  write("shop.json", R"({"text": "Mugs."})");
  for (const char* name : {"empty.txt", "a b.txt", "notes.md", "robot.json"}) fs::remove(folder() / name);
  settle();
  EXPECT_EQ(n_refused(), 0);
  EXPECT_EQ(registry_->find("shop")->info.id, pin) << "it is registered once";
}

TEST_F(PrefixFolderTest, passes_over_folders_hidden_files_and_what_editors_leave) {
  for (const char* name : {".hidden.txt", "shop.txt~", ".shop.txt.swp", "shop.txt.tmp", "shop.tmp", "#shop.txt#", "4913"})
    write(name, "x");
  fs::create_directory(folder() / "sub.txt");
  settle();
  EXPECT_EQ(served(), "");
  EXPECT_EQ(n_refused(), 0);
}

TEST_F(PrefixFolderTest, a_file_over_the_limit_is_not_read) {
  write("big.txt", "x");
  fs::resize_file(folder() / "big.txt", kMaxPrefixFileBytes + 1);
  settle();
  EXPECT_EQ(n_refused(), 1);
}

TEST_F(PrefixFolderTest, of_two_files_of_one_name_the_second_waits_for_the_first_to_go) {
  write("shop.json", R"({"text": "Mugs."})");
  write("shop.txt", "Cups.");
  settle();
  EXPECT_EQ(served(), "shop=Mugs. ");
  EXPECT_EQ(n_refused(), 1);
  fs::remove(folder() / "shop.json");
  settle();
  settle();
  EXPECT_EQ(served(), "shop=Cups. ");
  EXPECT_EQ(n_refused(), 0);
}

TEST_F(PrefixFolderTest, what_finds_no_room_is_tried_again_when_a_prefix_has_gone) {
  write("a.txt", std::string(100, 'a'));  // 8 of the 10 blocks that may be pinned
  write("b.txt", std::string(90, 'b'));
  settle();
  EXPECT_EQ(served(), "a=" + std::string(100, 'a') + " ");
  EXPECT_EQ(n_refused(), 1);
  settle();
  fs::remove(folder() / "a.txt");
  settle();
  look(milliseconds(10));
  EXPECT_EQ(served(), "b=" + std::string(90, 'b') + " ");
  look(milliseconds(10));
  EXPECT_EQ(n_refused(), 0);
}

TEST_F(PrefixFolderTest, a_name_that_is_taken_is_had_when_it_is_free) {
  ASSERT_TRUE(registry_->add({"shop", system_messages("Flag."), "1"}));
  write("shop.txt", "Mugs.");
  settle();
  EXPECT_EQ(served(), "shop=Flag. ");
  EXPECT_EQ(n_refused(), 1);
  ASSERT_TRUE(registry_->remove("shop", PrefixSource::api));
  look(milliseconds(10));
  EXPECT_EQ(served(), "shop=Mugs. ");
}

TEST_F(PrefixFolderTest, a_folder_that_cannot_be_read_removes_nothing) {
  write("shop.txt", "Mugs.");
  settle();
  fs::rename(folder(), root_ / "away");
  settle();
  settle();
  EXPECT_EQ(served(), "shop=Mugs. ");
  fs::rename(root_ / "away", folder());
  write("shop.txt", "Cups.");
  settle();
  EXPECT_EQ(served(), "shop=Cups. ");
}

TEST_F(PrefixFolderTest, registers_all_files_before_it_starts) {
  write("shop.txt", "Mugs.");
  write("bank.txt", "Lends.");
  ASSERT_TRUE(made_->register_all());
  EXPECT_EQ(served(), "bank=Lends. shop=Mugs. ");
  PrefixFolder missing(root_ / "none", OutwardLinks::refused, *registry_);
  const auto failed = missing.register_all();
  ASSERT_FALSE(failed);
  EXPECT_TRUE(failed.error().message.ends_with("none does not exist")) << failed.error().message;
}

/// A server with the folder.
class ServedFolder : public ::testing::Test {
 protected:
  ServedFolder() : folder_(fs::temp_directory_path() / ("baton_served_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write("bank.txt", "Lends umbrellas to every visitor.");
    ServerOptions options;
    options.prefix_folder = folder_;
    fixture_.emplace(std::move(options), EngineOptions{.max_num_batched_tokens = 16}, 1100, 16'384);
  }
  ~ServedFolder() override {
    fixture_.reset();
    fs::remove_all(folder_);
  }
  void write(const std::string& name, std::string_view text) const { std::ofstream(folder_ / name) << text; }
  std::string text_of(const std::string& name) const {
    const Prefixes::Use found = fixture_->server->prefixes().find(name);
    return found ? found->text : "none";
  }

  fs::path folder_;
  std::optional<HeldServer> fixture_;
};

TEST_F(ServedFolder, is_there_when_the_port_opens_and_follows_the_files) {
  fixture_->release();
  const json::Value listed = parsed(fixture_->get("/v1/prefixes/bank").body);
  EXPECT_EQ(listed["source"], "folder");
  EXPECT_NE(fixture_->get("/metrics").body.find(R"(baton:prefixes{model_name="demo",engine="0",source="folder"} 1)"),
            std::string::npos);
  write("bank.txt", "Lends coats.");
  write("cafe.txt", "Pours.");
  ServerFixture::wait_until([&] { return text_of("bank") == "Lends coats." && text_of("cafe") == "Pours."; });
  fs::remove(folder_ / "cafe.txt");
  ServerFixture::wait_until([&] { return text_of("cafe") == "none"; });
  const RawResponse refused = fixture_->remove("/v1/prefixes/bank");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("bank.txt: change or delete the file"), std::string::npos) << refused.body;
}

TEST_F(ServedFolder, a_change_cancels_the_prefill_of_the_old_contents) {
  const std::int64_t n_used = fixture_->engine->metrics().kv_blocks_used.value();
  write("long.txt", std::string(12'000, 'a'));  // hundreds of steps
  fixture_->run_until([&] { return fixture_->engine->metrics().kv_blocks_used.value() > n_used + 5; });
  write("long.txt", "Short.");
  fixture_->run_until([&] { return text_of("long") == "Short."; });
  EXPECT_LT(fixture_->engine->recent_steps().back().step, 12'000 / 16) << "it was computed to its end";
}

TEST_F(ServedFolder, does_not_keep_a_server_from_ending) {
  const std::int64_t n_used = fixture_->engine->metrics().kv_blocks_used.value();
  write("long.txt", std::string(12'000, 'a'));
  fixture_->run_until([&] { return fixture_->engine->metrics().kv_blocks_used.value() > n_used + 5; });
  fixture_->server->begin_shutdown();
  fixture_->release();
  fixture_->server->wait();
  EXPECT_EQ(text_of("long"), "none") << "its prefill was cancelled";
  EXPECT_EQ(text_of("bank"), "Lends umbrellas to every visitor.");
}

}  // namespace
}  // namespace baton
