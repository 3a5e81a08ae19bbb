/// Reading and registering prefixes (server/prefixes/prefixes.h).
#include "server/prefixes/prefixes.h"

#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

std::filesystem::path written(const std::string& name, std::string_view text) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_prefixes_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name) << text;
  return folder / name;
}

TEST(Prefixes, a_text_file_is_one_system_message) {
  const auto prefix = read_prefix("shop", written("shop.txt", "Mugs: $5\n"));
  ASSERT_TRUE(prefix);
  EXPECT_EQ(prefix->name, "shop");
  EXPECT_EQ(json::dump(prefix->messages), R"([{"role":"system","content":"Mugs: $5\n"}])");
}

TEST(Prefixes, a_json_file_is_a_list_of_messages) {
  const auto prefix =
      read_prefix("shop", written("shop.json", R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])"));
  ASSERT_TRUE(prefix);
  EXPECT_EQ(prefix->messages.size(), 2u);
  EXPECT_EQ(prefix_text(prefix->messages), "a\nb");
}

TEST(Prefixes, a_json_file_may_say_what_the_api_is_told) {
  const auto prefix =
      read_prefix("shop", written("full.json", R"({"id": "shop", "text": "Mugs.", "ttl_seconds": 60, "version": "2"})"));
  ASSERT_TRUE(prefix) << prefix.error().message;
  EXPECT_EQ(json::dump(prefix->messages), R"([{"role":"system","content":"Mugs."}])");
  EXPECT_EQ(prefix->ttl, std::chrono::seconds(60));
  EXPECT_EQ(prefix->version, "2");
  EXPECT_TRUE(prefix->file.ends_with("full.json"));
  EXPECT_EQ(read_prefix("ids", written("ids.json", R"({"tokens": [1, 2]})"))->tokens, (std::vector<TokenId>{1, 2}));
  const auto other = read_prefix("bank", written("full.json", R"({"id": "shop", "text": "Mugs."})"));
  ASSERT_FALSE(other);
  EXPECT_TRUE(other.error().message.ends_with("'id' is 'shop', and the prefix is called 'bank'")) << other.error().message;
  EXPECT_FALSE(read_prefix("shop", written("both.json", R"({"text": "a", "tokens": [1]})")));
  EXPECT_FALSE(read_prefix("shop", written("number.json", "7")));
  EXPECT_EQ(read_prefix("shop", written("bytes.txt", "\xFF\xFE")).error().code, ErrorCode::invalid_data);
}

TEST(Prefixes, says_what_is_wrong_with_a_file_or_a_name) {
  EXPECT_EQ(read_prefix("shop", "/nowhere/shop.txt").error().code, ErrorCode::not_found);
  EXPECT_EQ(read_prefix("shop", written("empty.txt", "")).error().code, ErrorCode::invalid_data);
  EXPECT_EQ(read_prefix("shop", written("bad.json", "{")).error().code, ErrorCode::invalid_data);
  const auto no_role = read_prefix("shop", written("role.json", R"([{"content": "a"}])"));
  ASSERT_FALSE(no_role);
  EXPECT_TRUE(no_role.error().message.ends_with("role.json: 'messages[0].role' is missing")) << no_role.error().message;
  for (const char* name : {"", "a b", "a:b", "a/b", ".", "..", "\xC3\xA9"})
    EXPECT_EQ(read_prefix(name, written("shop.txt", "x")).error().code, ErrorCode::invalid_request) << name;
}

TEST(Prefixes, have_the_tokens_that_all_conversations_with_them_share) {
  const ServedModel model = byte_model();
  const PrefixDefinition shop{"shop", parsed(R"([{"role": "system", "content": "Mugs."}])")};
  const auto tokens = prefix_tokens(model, shop);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(model.tokenizer.decode(tokens->tokens, false), "[system]Mugs.[user]");
  EXPECT_EQ(tokens->head.text, "") << "the template writes no special tokens";
  const auto raw = prefix_tokens(byte_model(/*has_template=*/false), shop);
  ASSERT_TRUE(raw);
  EXPECT_EQ(model.tokenizer.decode(raw->tokens, false), "Mugs.");
}

TEST(Prefixes, begin_as_requests_with_the_same_tools_and_messages_do) {
  const ServedModel model = tool_model();
  const auto asked = [&](std::string_view body) {
    const auto read = parse_prefix_request(parsed(body));
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    return prefix_tokens(model, read->definition);
  };
  const std::string tools = R"("tools": [{"function": {"name": "f"}}])";
  const std::string written_tools = R"([tools][{"type": "function", "function": {"name": "f"}}])";
  const auto text = [&](const Result<PrefixTokens>& made) { return model.tokenizer.decode(made->tokens, false); };
  EXPECT_EQ(text(asked(R"({"id": "a", "text": "Mugs.", )" + tools + "}")), written_tools + "[system]Mugs.[user]");
  EXPECT_EQ(text(asked(R"({"id": "a", )" + tools + "}")), written_tools + "[user]") << "tools alone";
  // A call is brought into the form that the template wants, as in a request.
  EXPECT_EQ(text(asked(R"({"id": "a", "messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
                          "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})")),
            "[assistant]<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>[user]");
  const auto unseen = parse_prefix_request(parsed(R"({"id": "a", "text": "Mugs.", )" + tools + "}"));
  const auto refused = prefix_tokens(byte_model(), unseen->definition);
  ASSERT_FALSE(refused) << "the template shows no tools";
  EXPECT_EQ(refused.error().param, "tools");
  EXPECT_EQ(prefix_tokens(byte_model(/*has_template=*/false), unseen->definition).error().param, "tools");
}

TEST(Prefixes, are_filled_once_and_found_by_name) {
  const ServedModel model = byte_model();
  ModelSpec spec = testing::tiny_spec();
  spec.n_vocab = kByteModelVocab;
  const auto engine = testing::make_tiny_engine({}, 256, spec);
  Prefixes prefixes(model, *engine);
  const json::Value messages = parsed(R"([{"role": "system", "content": "Sells mugs for five dollars each."}])");
  const auto info = prefixes.add({"shop", messages});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->n_tokens, 47);
  EXPECT_EQ(info->n_pinned_tokens, 32);
  EXPECT_EQ(prefixes.find("shop")->info.n_tokens, 47);
  EXPECT_FALSE(prefixes.find("bank"));
  const auto again = prefixes.add({"shop", messages});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, "prefix shop is already registered; another version would replace it");
  const auto robot = prefixes.add({"robot", parsed(R"([{"role": "robot", "content": "a"}])")});
  ASSERT_FALSE(robot);
  EXPECT_TRUE(robot.error().message.starts_with("prefix robot: ")) << robot.error().message;
}

/// Prefixes of a model whose tokens are bytes, on an engine that steps when it is asked to.
class LivingPrefixes : public ::testing::Test {
 protected:
  LivingPrefixes() {
    ModelSpec spec = testing::tiny_spec();
    spec.n_vocab = kByteModelVocab;
    engine_ = testing::make_tiny_engine({}, 256, spec);
    prefixes_.emplace(model_, *engine_);
  }
  Result<PinInfo> add(PrefixDefinition definition) { return prefixes_->add(std::move(definition)); }
  static json::Value saying(const std::string& text) { return parsed(R"([{"role": "system", "content": ")" + text + "\"}]"); }
  std::int64_t n_pinned_blocks() {
    while (engine_->step()) {
    }
    return engine_->metrics().kv_blocks_pinned.value();
  }
  std::string names() const {
    std::string all;
    prefixes_->for_each([&](const Prefixes::Entry& entry) { all += entry.definition.name + " "; });
    return all;
  }

  ServedModel model_ = byte_model();
  std::unique_ptr<Engine> engine_;
  std::optional<Prefixes> prefixes_;
};

TEST_F(LivingPrefixes, another_version_takes_the_place_and_the_pins_of_the_old_one) {
  ASSERT_TRUE(add({"bank", saying("Lends umbrellas.")}));
  const std::int64_t n_before = n_pinned_blocks();
  ASSERT_TRUE(add({"shop", saying(std::string(100, 'a')), "1"}));
  ASSERT_TRUE(add({"last", saying("Closes at noon, opens at one.")}));
  const std::int64_t n_first = n_pinned_blocks();
  prefixes_->count_hit("shop");
  prefixes_->count_hit("nobody");
  EXPECT_EQ(prefixes_->find("shop")->n_hits, 1);

  const auto same = add({"shop", saying("b"), "1"});
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error().message, "prefix shop is already registered with version 1; another version would replace it");
  EXPECT_EQ(same.error().param, "version");
  ASSERT_TRUE(add({"shop", saying(std::string(60, 'b')), "2"}));
  EXPECT_EQ(names(), "bank shop last ");
  EXPECT_EQ(prefixes_->find("shop")->text, std::string(60, 'b'));
  EXPECT_EQ(prefixes_->find("shop")->n_hits, 0);
  EXPECT_LT(n_pinned_blocks(), n_first);
  ASSERT_TRUE(prefixes_->remove("last", PrefixSource::api));
  ASSERT_TRUE(prefixes_->remove("shop", PrefixSource::api));
  EXPECT_EQ(n_pinned_blocks(), n_before);
  const auto gone = prefixes_->remove("shop", PrefixSource::api);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::not_found);
  EXPECT_EQ(gone.error().message, "the prefix 'shop' does not exist; there are: bank");
}

TEST_F(LivingPrefixes, a_replacement_that_fails_leaves_the_old_version) {
  ASSERT_TRUE(add({"shop", saying(std::string(100, 'a')), "1"}));
  const std::int64_t n_pinned = n_pinned_blocks();
  ASSERT_FALSE(add({"shop", saying(std::string(5000, 'b')), "2"}));
  EXPECT_EQ(prefixes_->find("shop")->definition.version, "1");
  EXPECT_EQ(n_pinned_blocks(), n_pinned);
}

TEST_F(LivingPrefixes, of_the_folder_are_the_folders_alone) {
  PrefixDefinition file{"shop", saying("Sells mugs."), "1"};
  file.source = PrefixSource::folder;
  file.file = "/prompts/shop.txt";
  ASSERT_TRUE(add(file));
  const auto replaced = add({"shop", saying("Sells nothing."), "2"});
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().param, "id");
  EXPECT_EQ(replaced.error().message, "prefix shop belongs to the file /prompts/shop.txt: change or delete the file");
  EXPECT_EQ(prefixes_->remove("shop", PrefixSource::api).error().message, replaced.error().message);
  file.messages = saying("Sells cups.");
  ASSERT_TRUE(add(file)) << "a file's new contents need no new version";
  EXPECT_EQ(prefixes_->find("shop")->text, "Sells cups.");
  ASSERT_TRUE(add({"bank", saying("Lends umbrellas.")}));
  file.name = "bank";
  EXPECT_EQ(add(file).error().message, "prefix bank was registered by the command line and does not belong to the folder");
  EXPECT_EQ(prefixes_->counts().by_source, (std::array<std::int64_t, 3>{1, 0, 1}));
  EXPECT_EQ(prefixes_->n_removed(), 1);
  EXPECT_TRUE(prefixes_->remove("shop", PrefixSource::folder));
}

TEST_F(LivingPrefixes, are_removed_when_their_time_has_come) {
  using std::chrono::seconds;
  ASSERT_TRUE(add({"short", saying(std::string(40, 'a')), "", seconds(60)}));
  ASSERT_TRUE(add({"long", saying(std::string(40, 'b')), "", seconds(3600)}));
  ASSERT_TRUE(add({"ever", saying(std::string(40, 'c'))}));
  static_assert(Prefixes::Clock::is_steady, "setting the time of day neither ends nor prolongs a lifetime");
  const auto expiry = *prefixes_->find("short")->expires;
  const auto later = *prefixes_->find("long")->expires;
  EXPECT_FALSE(prefixes_->find("ever")->expires);
  EXPECT_EQ(prefixes_->remove_expired(expiry - seconds(1)), expiry);
  EXPECT_EQ(names(), "short long ever ");
  const std::int64_t n_pinned = n_pinned_blocks();
  EXPECT_EQ(prefixes_->remove_expired(expiry), later);
  EXPECT_EQ(names(), "long ever ");
  EXPECT_LT(n_pinned_blocks(), n_pinned);
  EXPECT_EQ(prefixes_->remove_expired(later + seconds(1)), std::nullopt);
  EXPECT_EQ(names(), "ever ");
}

}  // namespace
}  // namespace baton
