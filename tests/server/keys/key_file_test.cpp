/// The file of --api-key-file: its fields, and errors that name the place and show no key (server/keys/api_keys.h).
#include "server/keys/api_keys.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "io/file.h"
#include "server/limits/prefix_name.h"

namespace baton {
namespace {

class KeyFile : public ::testing::Test {
 protected:
  std::string error_of(const std::string& text) {
    EXPECT_TRUE(write_file(path_, text));
    const auto read = read_key_file(path_);
    if (read) return "";
    EXPECT_EQ(read.error().code, ErrorCode::invalid_data);
    EXPECT_TRUE(read.error().message.find(path_.string()) != std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().message.find("sk-secret"), std::string::npos) << "the message shows a key: " << read.error().message;
    return read.error().message.substr(path_.string().size());
  }
  std::string error_of_entry(const std::string& fields) {
    return error_of(R"({"keys": [{"name": "first", "key": "sk-secret-1"}, {)" + fields + "}]}");
  }
  ~KeyFile() override { std::filesystem::remove(path_); }

  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string("keys_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".json");
};

TEST_F(KeyFile, reads_all_fields) {
  ASSERT_TRUE(write_file(path_, R"({"keys": [
    {"name": "shop", "key": "sk-secret-1", "role": "admin", "weight": 3, "cache_salt": "mugs",
     "requests_per_minute": 60, "tokens_per_minute": 90000, "concurrent_requests": 4, "pinned_blocks": 0},
    {"name": "bank", "key_sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", "weight": null}]})"));
  const auto read = read_key_file(path_);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  const KeyEntry& shop = (*read)[0];
  EXPECT_EQ(shop.name, "shop");
  EXPECT_TRUE(is_same_key(shop.digest, digest_of("sk-secret-1")));
  EXPECT_EQ(shop.role, KeyRole::admin);
  EXPECT_EQ(shop.weight, 3);
  EXPECT_EQ(shop.quotas, (KeyQuotas{60, 90000, 4, 0}));
  const KeyEntry& bank = (*read)[1];
  EXPECT_TRUE(is_same_key(bank.digest, digest_of("secret")));
  EXPECT_EQ(bank.role, KeyRole::user);
  EXPECT_EQ(bank.weight, 1);
  EXPECT_EQ(bank.quotas, KeyQuotas{});
  EXPECT_TRUE(shop.salt && bank.salt && shop.salt != bank.salt) << "each key has its own part of the cache";
}

TEST_F(KeyFile, names_the_entry_and_the_field_and_shows_no_key) {
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret-2", "wieght": 2)"),
            ": entry 2 (b): unknown field \"wieght\"; there are: name, key, key_sha256, role, weight, cache_salt, "
            "requests_per_minute, tokens_per_minute, concurrent_requests, pinned_blocks");
  EXPECT_EQ(error_of_entry(R"("key": "sk-secret-2")"), ": entry 2: 'name' is missing");
  EXPECT_EQ(error_of_entry(R"("name": "a b", "key": "sk-secret-2")"),
            ": entry 2: 'name' must be " + std::string(kPrefixNameRule));
  EXPECT_EQ(error_of_entry(R"("name": "b")"), ": entry 2 (b): it must have either 'key' or 'key_sha256'");
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret-2", "key_sha256": "00")"),
            ": entry 2 (b): it must have either 'key' or 'key_sha256'");
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret 2")"),
            ": entry 2 (b): 'key' must be 1 to 1024 printable ASCII characters without spaces");
  EXPECT_EQ(error_of_entry(R"("name": "b", "key_sha256": "sk-secret-2")"),
            ": entry 2 (b): 'key_sha256' must be 64 hexadecimal digits, as 'printf %s KEY | sha256sum' prints");
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret-2", "role": "root")"),
            ": entry 2 (b): 'role' must be \"user\" or \"admin\"");
  EXPECT_NE(error_of_entry(R"("name": "b", "key": "sk-secret-2", "weight": 0)").find(": entry 2 (b): 'weight' must be"),
            std::string::npos);
  EXPECT_NE(error_of_entry(R"("name": "b", "key": "sk-secret-2", "requests_per_minute": 0)").find("'requests_per_minute' must"),
            std::string::npos);
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret-2", "cache_salt": "")"),
            ": entry 2 (b): 'cache_salt' must have 1 to 256 bytes");
  EXPECT_EQ(error_of_entry(R"("name": "first", "key": "sk-secret-2")"), ": entry 2 (first): another entry has the same 'name'");
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret-1")"), ": entry 2 (b): the entry first has the same key");
}

// Which of two values counts is a matter of the reader; a second weight or role may be one that no reader has seen.
TEST_F(KeyFile, refuses_what_is_given_twice_by_its_place) {
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret-2", "role": "user", "role": "admin")"),
            ": 'keys[1].role' is given twice");
  EXPECT_EQ(error_of_entry(R"("name": "b", "key": "sk-secret-2", "key": "sk-secret-3")"), ": 'keys[1].key' is given twice");
  EXPECT_EQ(error_of(R"({"keys": [{"name": "a", "key": "sk-secret"}], "keys": []})"), ": 'keys' is given twice");
}

TEST_F(KeyFile, refuses_what_is_no_list_of_keys) {
  EXPECT_EQ(error_of(R"(["sk-secret"])"), ": it must hold an object, not a list");
  EXPECT_EQ(error_of("{}"), ": 'keys' must be a list of 1 to 1000 entries");
  EXPECT_EQ(error_of(R"({"keys": []})"), ": 'keys' must be a list of 1 to 1000 entries");
  EXPECT_EQ(error_of(R"({"keys": ["sk-secret"]})"), ": entry 1: it must be an object, not a string");
  EXPECT_EQ(error_of(R"({"keys": [], "more": 1})"), ": unknown field \"more\"; there are: keys");
  for (const std::string broken : {R"({"keys": [{"key": "sk-secret)", R"({"keys": [{"key": sk-secret}]})",
                                   "{\"keys\": [{\"key\": \"sk-secret\t\"}]}", R"({"keys": [{"key" "sk-secret"}]})"})
    EXPECT_NE(error_of(broken).find("line 1, column"), std::string::npos) << error_of(broken);
  EXPECT_EQ(read_key_file(path_.string() + ".none").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace baton
