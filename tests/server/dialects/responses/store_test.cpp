/// Stored responses (server/dialects/responses/store.h).
#include "server/dialects/responses/store.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Clock = ResponseStore::Clock;

constexpr Clock::time_point kNow{std::chrono::hours(1)};

StoredResponse of_bytes(std::size_t n) { return {std::string(n, 'x'), "[]", {}}; }

TEST(ResponseStore, shows_a_response_to_its_owner_alone) {
  ResponseStore store({});
  store.put("anna", "1", {"{}", "[]", "salt"}, kNow);
  const auto found = store.find("anna", "1", kNow);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->response, "{}");
  EXPECT_EQ(found->salt, "salt");
  EXPECT_EQ(store.find("bert", "1", kNow), nullptr);
  EXPECT_FALSE(store.remove("bert", "1", kNow));
  EXPECT_TRUE(store.remove("anna", "1", kNow));
  EXPECT_EQ(store.find("anna", "1", kNow), nullptr);
  EXPECT_EQ(store.size(), 0u);
  EXPECT_EQ(store.n_bytes(), 0u);
}

TEST(ResponseStore, has_the_limits_of_the_memory_for_clients) {
  const ResponseStoreLimits limits = response_store_limits(std::int64_t{512} << 20);
  EXPECT_EQ(limits.bytes, std::size_t{64} << 20);
  EXPECT_EQ(limits.owner_bytes, std::size_t{16} << 20);
  EXPECT_EQ(response_store_limits(std::int64_t{4} << 30).bytes, std::size_t{512} << 20);
}

TEST(ResponseStore, drops_the_owner_s_own_that_was_not_used_for_the_longest_time) {
  ResponseStore store({.owner_entries = 2});
  store.put("anna", "1", of_bytes(1), kNow);
  store.put("bert", "b", of_bytes(1), kNow);
  store.put("anna", "2", of_bytes(1), kNow);
  EXPECT_NE(store.find("anna", "1", kNow), nullptr);
  store.put("anna", "3", of_bytes(1), kNow);
  EXPECT_EQ(store.find("anna", "2", kNow), nullptr);
  EXPECT_NE(store.find("anna", "1", kNow), nullptr);
  EXPECT_NE(store.find("anna", "3", kNow), nullptr);
  EXPECT_NE(store.find("bert", "b", kNow), nullptr);
}

TEST(ResponseStore, is_bounded_in_bytes_for_each_owner_and_for_all) {
  ResponseStore store({.owner_entries = 1000, .owner_bytes = 20'000, .bytes = 30'000});
  for (int i = 0; i < 10; ++i) store.put("anna", std::to_string(i), of_bytes(4'000), kNow);
  EXPECT_LE(store.n_bytes(), 20'000u);
  EXPECT_EQ(store.size(), 4u);
  for (int i = 0; i < 10; ++i) store.put("bert", "b" + std::to_string(i), of_bytes(4'000), kNow);
  EXPECT_LE(store.n_bytes(), 30'000u);
  EXPECT_EQ(store.size(), 6u);
  EXPECT_NE(store.find("bert", "b9", kNow), nullptr);
  store.put("carl", "c", of_bytes(25'000), kNow);
  EXPECT_EQ(store.find("carl", "c", kNow), nullptr) << "it is larger than an owner's share";
  EXPECT_EQ(store.size(), 6u);
}

TEST(ResponseStore, forgets_a_response_after_its_lifetime) {
  ResponseStore store({.lifetime = std::chrono::seconds(60)});
  store.put("anna", "1", of_bytes(1), kNow);
  EXPECT_NE(store.find("anna", "1", kNow + std::chrono::seconds(59)), nullptr);
  EXPECT_EQ(store.find("anna", "1", kNow + std::chrono::seconds(60)), nullptr);
  EXPECT_FALSE(store.remove("anna", "1", kNow + std::chrono::seconds(60)));
  store.put("bert", "2", of_bytes(1), kNow + std::chrono::seconds(61));
  EXPECT_EQ(store.size(), 1u) << "the other one went";
}

TEST(ResponseStore, replaces_one_of_the_same_id) {
  ResponseStore store({});
  store.put("anna", "1", of_bytes(10), kNow);
  store.put("anna", "1", of_bytes(20), kNow);
  EXPECT_EQ(store.size(), 1u);
  EXPECT_EQ(store.find("anna", "1", kNow)->response.size(), 20u);
}

}  // namespace
}  // namespace baton
