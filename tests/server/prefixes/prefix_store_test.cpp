/// Prefixes that outlive their server: loaded with the same answers, refused by name where a file does not fit
/// (server/prefixes/prefix_store.h, server/prefixes/prefixes.h).
#include "server/prefixes/prefix_store.h"

#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include <gtest/gtest.h>

#include "io/file.h"
#include "server/byte_model.h"
#include "server/prefixes/prefixes.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

/// What a server has of prefixes, from its start to its end. The engine steps on the test's thread.
struct ServerRun {
  explicit ServerRun(const std::filesystem::path& folder, std::string digest = "weights", EngineOptions options = {},
                     std::uint64_t max_bytes = 0, ServedModel served = byte_model(), ModelSpec spec = testing::tiny_spec())
      : model(std::move(served)) {
    spec.n_vocab = kByteModelVocab;
    engine = testing::make_tiny_engine(options, 256, spec, 1);
    auto opened = PrefixStore::open({folder, max_bytes});
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    store = std::move(*opened);
    store->scan(*engine, {{"model", digest}});
    prefixes.emplace(model, *engine, PrefixLimits{}, store.get());
    prefixes->restore();
  }
  Result<PinInfo> add(const std::string& name, const std::string& text, const std::string& version = "",
                      std::optional<std::chrono::seconds> ttl = {}, PrefixSource source = PrefixSource::api) {
    PrefixDefinition definition{name, system_messages(text), version, ttl};
    definition.source = source;
    return prefixes->add(std::move(definition));
  }
  std::string names() const {
    std::string all;
    prefixes->for_each([&](const Prefixes::Entry& entry) { all += entry.definition.name + " "; });
    return all;
  }
  /// A greedy answer with its log-probabilities behind the prefix's tokens.
  testing::Generated ask(const std::string& name) {
    std::vector<TokenId> prompt = prefix_tokens(model, prefixes->find(name)->definition)->tokens;
    prompt.push_back('?');
    return testing::run_requests(*engine, {testing::greedy(prompt, 8)})[0];
  }

  ServedModel model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<PrefixStore> store;
  std::optional<Prefixes> prefixes;
};

const std::string kText = "Sells mugs for five dollars each, plates for seven, and nothing at all on Sundays.";

class PrefixStoreFolder : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path file(const std::string& name) const { return folder_ / (name + ".kvprefix"); }
  std::size_t n_files() const {
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) n += entry.path().filename() == ".lock" ? 0 : 1;
    return n;
  }
  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "baton_prefix_store_test" / "inner";
};

TEST_F(PrefixStoreFolder, brings_prefixes_back_with_the_same_answers_to_the_bit) {
  testing::Generated before;
  std::int64_t created = 0;
  {
    ServerRun run(folder_);
    ASSERT_TRUE(run.add("shop", kText, "2", std::chrono::hours(1)));
    ASSERT_TRUE(run.add("short", "x"));
    const auto entry = run.prefixes->find("shop");
    EXPECT_TRUE(entry->is_stored);
    EXPECT_FALSE(entry->is_loaded);
    created = entry->created;
    before = run.ask("shop");
  }
  EXPECT_EQ(n_files(), 2U);
  ServerRun run(folder_);
  EXPECT_EQ(run.names(), "shop short ");
  EXPECT_EQ(run.engine->metrics().steps.value(), 0) << "nothing is computed";
  const auto entry = run.prefixes->find("shop");
  EXPECT_TRUE(entry->is_stored);
  EXPECT_TRUE(entry->is_loaded);
  EXPECT_EQ(entry->definition.version, "2");
  EXPECT_EQ(entry->definition.ttl, std::chrono::hours(1));
  EXPECT_EQ(entry->created, created);
  EXPECT_LE(*entry->expires, Prefixes::Clock::now() + std::chrono::hours(1));
  const testing::Generated after = run.ask("shop");
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_EQ(after.logprobs, before.logprobs);
  EXPECT_EQ(after.stats.cached_tokens, before.stats.cached_tokens);
  EXPECT_GT(after.stats.cached_tokens, 0);
  const PrefixStoreCounts counts = run.store->counts();
  EXPECT_EQ(counts.n_files, 2);
  EXPECT_EQ(counts.n_loaded, 2);
  EXPECT_EQ(counts.n_written, 0);
  EXPECT_EQ(counts.n_refused, 0);
  EXPECT_EQ(counts.n_bytes, counts.n_loaded_bytes);
  EXPECT_GT(counts.n_bytes, 16 * 1024);
}

TEST_F(PrefixStoreFolder, brings_back_states_of_recurrent_layers_so_that_nothing_is_replayed) {
  const EngineOptions options{.batch_invariant = true, .max_num_seqs = 4, .max_model_len = 512};
  testing::Generated before;
  {
    ServerRun run(folder_, "weights", options, 0, byte_model(), testing::recurrent_spec());
    ASSERT_TRUE(run.add("shop", kText));
    before = run.ask("shop");
  }
  ServerRun run(folder_, "weights", options, 0, byte_model(), testing::recurrent_spec());
  EXPECT_TRUE(run.prefixes->find("shop")->is_loaded);
  EXPECT_EQ(run.engine->metrics().steps.value(), 0) << "nothing is computed";
  EXPECT_EQ(run.engine->metrics().state_snapshots_pinned.value(), 1);
  const testing::Generated after = run.ask("shop");
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_EQ(after.logprobs, before.logprobs);
  EXPECT_EQ(after.stats.cached_tokens, before.stats.cached_tokens);
  EXPECT_GT(after.stats.cached_tokens, 0);
  EXPECT_EQ(after.stats.replayed_tokens, 0);
  run.engine->check_invariants();
  // A model with states of another shape has another layout.
  ModelSpec other = testing::recurrent_spec();
  for (LayerSpec& layer : other.layers)
    if (layer.delta) layer.delta->value_dim = 16;
  const ServerRun refusing(folder_, "weights", options, 0, byte_model(), other);
  EXPECT_EQ(refusing.store->counts().n_refused, 1);
}

TEST_F(PrefixStoreFolder, a_deleted_an_expired_and_a_replaced_prefix_do_not_come_back) {
  {
    ServerRun run(folder_);
    ASSERT_TRUE(run.add("gone", kText));
    ASSERT_TRUE(run.add("old", kText, "", std::chrono::seconds(1)));
    ASSERT_TRUE(run.add("kept", kText, "1"));
    ASSERT_TRUE(run.add("kept", kText + " Until noon.", "2"));
    ASSERT_TRUE(run.add("late", kText, "", std::chrono::seconds(30)));
    ASSERT_TRUE(run.prefixes->remove("gone", PrefixSource::api));
    run.prefixes->remove_expired(Prefixes::Clock::now() + std::chrono::seconds(5));
    EXPECT_FALSE(std::filesystem::exists(file("gone")));
    EXPECT_FALSE(std::filesystem::exists(file("old")));
    // The lifetime of this one ends while no server runs.
    const auto stored = run.store->stored(std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1) + 31);
    ASSERT_EQ(stored.size(), 1U);
    EXPECT_FALSE(std::filesystem::exists(file("late")));
  }
  ServerRun run(folder_);
  EXPECT_EQ(run.names(), "kept ");
  EXPECT_EQ(run.prefixes->find("kept")->definition.version, "2");
}

TEST_F(PrefixStoreFolder, prefixes_of_flags_and_folders_are_loaded_when_they_are_given_again) {
  {
    ServerRun run(folder_);
    ASSERT_TRUE(run.add("flagged", kText, "", {}, PrefixSource::flag));
    ASSERT_TRUE(run.add("dropped", kText, "", {}, PrefixSource::folder));
    ASSERT_TRUE(run.add("changed", kText, "", {}, PrefixSource::folder));
  }
  {
    ServerRun run(folder_);
    EXPECT_EQ(run.names(), "") << "their texts come with the start";
    ASSERT_TRUE(run.add("flagged", kText, "", {}, PrefixSource::flag));
    EXPECT_TRUE(run.prefixes->find("flagged")->is_loaded);
    ASSERT_TRUE(run.add("changed", "Something else altogether, which is of no interest.", "", {}, PrefixSource::folder));
    EXPECT_FALSE(run.prefixes->find("changed")->is_loaded);
    EXPECT_TRUE(run.prefixes->find("changed")->is_stored);
    EXPECT_EQ(run.store->counts().n_refused, 1) << "the tokens of the other text";
    EXPECT_EQ(run.store->counts().n_written, 1);
    run.store->remove_unclaimed();
  }
  EXPECT_FALSE(std::filesystem::exists(file("dropped")));
  EXPECT_EQ(n_files(), 2U);
}

TEST_F(PrefixStoreFolder, foreign_files_are_refused_and_stay) {
  { ASSERT_TRUE(ServerRun(folder_).add("shop", kText)); }
  EngineOptions other_blocks;
  other_blocks.block_len = 32;
  EngineOptions invariant;
  invariant.batch_invariant = true;
  for (const bool is_other_model : {true, false}) {
    ServerRun run(folder_, is_other_model ? "other weights" : "weights", is_other_model ? EngineOptions{} : other_blocks);
    EXPECT_EQ(run.names(), "");
    EXPECT_EQ(run.store->counts().n_refused, 1);
    EXPECT_TRUE(std::filesystem::exists(file("shop")));
  }
  EXPECT_EQ(ServerRun(folder_, "weights", invariant).names(), "");
  std::filesystem::copy_file(file("shop"), file("renamed"));
  std::ofstream(file("text")) << "not a prefix";
  std::ofstream(folder_ / "notes.txt") << "of no interest";
  ServerRun run(folder_);
  EXPECT_EQ(run.names(), "shop ");
  EXPECT_EQ(run.store->counts().n_refused, 2);
  EXPECT_EQ(n_files(), 4U);
  // What is registered under the name of a refused file replaces it.
  ASSERT_TRUE(run.add("text", kText));
  EXPECT_TRUE(run.prefixes->find("text")->is_stored);
}

TEST_F(PrefixStoreFolder, a_changed_template_computes_the_prefix_again) {
  { ASSERT_TRUE(ServerRun(folder_).add("shop", kText)); }
  ServedModel other = byte_model();
  other.chat_template.emplace(parsed_template("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"));
  other.look_at_templates();
  {
    ServerRun run(folder_, "weights", {}, 0, std::move(other));
    EXPECT_EQ(run.names(), "shop ");
    EXPECT_FALSE(run.prefixes->find("shop")->is_loaded);
    EXPECT_TRUE(run.prefixes->find("shop")->is_stored);
  }
}

TEST_F(PrefixStoreFolder, no_damage_changes_an_answer) {
  testing::Generated before;
  {
    ServerRun run(folder_);
    ASSERT_TRUE(run.add("shop", kText, "", {}, PrefixSource::flag));
    before = run.ask("shop");
  }
  const std::string bytes = read_file(file("shop")).value();
  std::vector<std::string> damaged = {bytes.substr(0, bytes.size() / 2), bytes.substr(0, 10), "", bytes + "x"};
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{60}, bytes.size() / 2, bytes.size() - 1}) {
    damaged.push_back(bytes);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x10);
  }
  for (const std::string& wrong : damaged) {
    ASSERT_TRUE(write_file(file("shop"), wrong));
    ServerRun run(folder_);
    ASSERT_TRUE(run.add("shop", kText, "", {}, PrefixSource::flag));
    EXPECT_FALSE(run.prefixes->find("shop")->is_loaded);
    EXPECT_EQ(run.store->counts().n_refused, 1);
    const testing::Generated after = run.ask("shop");
    EXPECT_EQ(after.tokens, before.tokens);
    EXPECT_EQ(after.logprobs, before.logprobs);
    run.engine->check_invariants();
    EXPECT_EQ(read_file(file("shop")).value(), bytes) << "computed and stored again";
  }
}

TEST_F(PrefixStoreFolder, a_full_disk_and_a_limit_are_named_and_the_service_continues) {
  {
    ServerRun run(folder_);
    ASSERT_TRUE(run.add("shop", kText, "1"));
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const rlimit small{4096, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const auto added = run.add("shop", kText, "2");
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    ASSERT_TRUE(added) << "it serves";
    const auto entry = run.prefixes->find("shop");
    EXPECT_FALSE(entry->is_stored);
    EXPECT_TRUE(entry->store_error.starts_with("cannot write " + file("shop").string() + ": File too large ("))
        << entry->store_error;
    EXPECT_EQ(run.store->counts().n_failed, 1);
    EXPECT_EQ(n_files(), 0U) << "nor does version 1 come back";
  }
  ServerRun run(folder_, "weights", {}, 400'000);
  ASSERT_TRUE(run.add("first", kText));
  EXPECT_TRUE(run.prefixes->find("first")->is_stored) << run.prefixes->find("first")->store_error;
  ASSERT_TRUE(run.add("second", std::string(300, 'a')));
  EXPECT_FALSE(run.prefixes->find("second")->is_stored);
  EXPECT_NE(run.prefixes->find("second")->store_error.find("--prefix-store-bytes is 400000"), std::string::npos)
      << run.prefixes->find("second")->store_error;
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(PrefixStoreFolder, one_server_writes_and_others_read) {
  ServerRun first(folder_);
  ASSERT_TRUE(first.add("shop", kText));
  {
    ServerRun second(folder_);
    EXPECT_TRUE(second.prefixes->find("shop")->is_loaded);
    ASSERT_TRUE(second.add("bank", kText));
    EXPECT_EQ(second.prefixes->find("bank")->store_error, "another server writes to the prefix store " + folder_.string());
    ASSERT_TRUE(second.prefixes->remove("shop", PrefixSource::api));
    EXPECT_TRUE(std::filesystem::exists(file("shop")));
    first.store.reset();
    ASSERT_TRUE(second.add("mill", kText)) << "the other server has ended";
    EXPECT_TRUE(second.prefixes->find("mill")->is_stored);
  }
}

TEST_F(PrefixStoreFolder, removes_what_a_killed_server_left_half_written) {
  { ASSERT_TRUE(ServerRun(folder_).add("shop", kText)); }
  std::filesystem::copy_file(file("shop"), folder_ / "bank.kvprefix.a1b2C3");
  std::filesystem::copy_file(file("shop"), folder_ / "notes.a1b2C3");
  ServerRun run(folder_);
  EXPECT_EQ(run.names(), "shop ");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "bank.kvprefix.a1b2C3"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "notes.a1b2C3"));
}

TEST_F(PrefixStoreFolder, says_why_a_folder_cannot_be_used) {
  std::filesystem::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  const auto opened = PrefixStore::open({folder_});
  ASSERT_FALSE(opened);
  EXPECT_TRUE(opened.error().message.starts_with("--prefix-store: cannot use the folder ")) << opened.error().message;
}

TEST(StoredDefinition, says_all_that_registers_a_prefix_of_the_api_again) {
  PrefixDefinition api{"shop", system_messages("Mugs \"\n\xC3\xA9"), "2", std::chrono::seconds(60)};
  api.source = PrefixSource::api;
  api.owner = "key";
  api.tools = parsed(R"([{"type": "function", "function": {"name": "f"}}])");
  const auto read = definition_of("shop", metadata_of(api, 123));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->name, "shop");
  EXPECT_EQ(read->messages, api.messages);
  EXPECT_EQ(read->tools, api.tools);
  EXPECT_EQ(read->version, "2");
  EXPECT_EQ(read->ttl, api.ttl);
  EXPECT_EQ(read->owner, "key");
  EXPECT_EQ(read->created, 123);
  EXPECT_EQ(read->source, PrefixSource::api);
  PrefixDefinition tokens{"ids", nullptr};
  tokens.source = PrefixSource::api;
  tokens.tokens = {1, 2};
  EXPECT_EQ(definition_of("ids", metadata_of(tokens, 1))->tokens, tokens.tokens);
  api.source = PrefixSource::folder;
  EXPECT_EQ(metadata_of(api, 123), metadata_of(api, 456)) << "it is registered again at each start";
  EXPECT_EQ(definition_of("shop", metadata_of(api, 123))->source, PrefixSource::folder);
  for (const char* wrong : {"", "[]", "{}", R"({"source": "moon", "version": ""})", R"({"source": "api", "version": ""})",
                            R"({"source":"api","version":"","created":1,"owner":""})"})
    EXPECT_FALSE(definition_of("shop", wrong)) << wrong;
}

}  // namespace
}  // namespace baton
