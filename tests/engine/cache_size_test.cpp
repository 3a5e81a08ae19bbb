/// The size of the KV cache at its limits.
#include "engine/cache_size.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

CacheSizeOptions options() {
  return {.block_bytes = 1000,
          .block_len = 16,
          .max_model_len = 100,
          .max_num_seqs = 4,
          .kv_cache_bytes = 0,
          .free_memory_bytes = 1'000'000,
          .memory_utilization = 0.9,
          .is_host_memory = false};
}

TEST(CacheSize, takes_what_all_sequences_and_some_kept_ones_could_fill_and_no_more) {
  EXPECT_EQ(choose_n_blocks(options()).value(), 7 * (4 + kKeptContexts));
}

TEST(CacheSize, takes_a_share_of_free_memory_where_that_is_less) {
  CacheSizeOptions of = options();
  of.free_memory_bytes = 20'000;
  EXPECT_EQ(choose_n_blocks(of).value(), 18);
  of.max_num_seqs = 400;
  of.free_memory_bytes = 1'000'000;
  EXPECT_EQ(choose_n_blocks(of).value(), 900);
  of.is_host_memory = true;
  EXPECT_EQ(choose_n_blocks(of).value(), 250);
  of.memory_utilization = 0.1;
  EXPECT_EQ(choose_n_blocks(of).value(), 100);
}

TEST(CacheSize, gives_what_is_asked_for) {
  CacheSizeOptions of = options();
  of.kv_cache_bytes = 7'999;
  EXPECT_EQ(choose_n_blocks(of).value(), 7);
  of.kv_cache_bytes = 123'456;
  EXPECT_EQ(choose_n_blocks(of).value(), 123);
}

TEST(CacheSize, says_both_numbers_when_one_sequence_does_not_fit) {
  CacheSizeOptions of = options();
  of.kv_cache_bytes = 6'999;
  const auto refused = choose_n_blocks(of);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(refused.error().message.find("96 tokens"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("112 tokens"), std::string::npos) << refused.error().message;
  of.kv_cache_bytes = 0;
  of.free_memory_bytes = -5;
  EXPECT_FALSE(choose_n_blocks(of));
}

TEST(CacheSize, refuses_absurd_options) {
  CacheSizeOptions of = options();
  of.kv_cache_bytes = -1;
  EXPECT_EQ(choose_n_blocks(of).error().param, "kv_cache_bytes");
  of = options();
  for (const double share : {0.0, -1.0, 1.5}) {
    of.memory_utilization = share;
    EXPECT_EQ(choose_n_blocks(of).error().param, "memory_utilization");
  }
}

}  // namespace
}  // namespace baton
