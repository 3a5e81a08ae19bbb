/// The size of the KV cache at its limits.
#include "engine/cache/cache_size.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

CacheSizeOptions options() {
  return {.groups = {{.block_bytes = 1000}},
          .block_len = 16,
          .max_model_len = 100,
          .max_num_seqs = 4,
          .kv_cache_bytes = 0,
          .free_memory_bytes = 1'000'000,
          .memory_utilization = 0.9,
          .is_host_memory = false};
}

TEST(CacheSize, takes_what_all_sequences_and_some_kept_ones_could_fill_and_no_more) {
  EXPECT_EQ(choose_cache_groups(options()).value()[0].n_blocks, 7 * (4 + kKeptContexts));
}

TEST(CacheSize, takes_a_share_of_free_memory_where_that_is_less) {
  CacheSizeOptions of = options();
  of.free_memory_bytes = 20'000;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 18);
  of.max_num_seqs = 400;
  of.free_memory_bytes = 1'000'000;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 900);
  of.is_host_memory = true;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 250);
  of.memory_utilization = 0.1;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 100);
}

TEST(CacheSize, gives_what_is_asked_for) {
  CacheSizeOptions of = options();
  of.kv_cache_bytes = 7'999;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 7);
  of.kv_cache_bytes = 123'456;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 123);
}

TEST(CacheSize, says_both_numbers_when_one_sequence_does_not_fit) {
  CacheSizeOptions of = options();
  of.kv_cache_bytes = 6'999;
  const auto refused = choose_cache_groups(of);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(refused.error().message.find("96 tokens"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("112 tokens"), std::string::npos) << refused.error().message;
  of.kv_cache_bytes = 0;
  of.free_memory_bytes = -5;
  EXPECT_FALSE(choose_cache_groups(of));
}

TEST(CacheSize, the_longest_fitting_sequence_fits_and_one_block_more_does_not) {
  CacheSizeOptions of = options();
  EXPECT_EQ(longest_fitting(of), 100);  // all
  of.kv_cache_bytes = 6'999;
  EXPECT_EQ(longest_fitting(of), 96);
  of.kv_cache_bytes = 1;
  EXPECT_EQ(longest_fitting(of), 16);  // choose_cache_groups then says that it does not fit
  of.groups = {{.block_bytes = 1000, .window = 32}, {.block_bytes = 1500}};
  of.max_model_len = 4'000'000;
  of.max_rows_in_flight = 64;
  of.kv_cache_bytes = 100'000'000;
  of.max_model_len = longest_fitting(of);
  EXPECT_LT(of.max_model_len, 4'000'000);
  EXPECT_TRUE(choose_cache_groups(of));
  of.max_model_len += 16;
  EXPECT_FALSE(choose_cache_groups(of));
}

TEST(CacheSize, refuses_absurd_options) {
  CacheSizeOptions of = options();
  of.kv_cache_bytes = -1;
  EXPECT_EQ(choose_cache_groups(of).error().param, "kv_cache_bytes");
  of = options();
  for (const double share : {0.0, -1.0, 1.5}) {
    of.memory_utilization = share;
    EXPECT_EQ(choose_cache_groups(of).error().param, "memory_utilization");
  }
}

/// 20 sequences and 8 kept contexts of up to 100 blocks. A window of 160 tokens takes 10 blocks, and one more where it
/// begins.
CacheSizeOptions options_of_two_groups() {
  return {.groups = {{.block_bytes = 1000}, {.block_bytes = 5000, .window = 160}},
          .block_len = 16,
          .max_model_len = 1600,
          .max_num_seqs = 20,
          .max_rows_in_flight = 320,
          .kv_cache_bytes = 0,
          .free_memory_bytes = 10'000'000,
          .memory_utilization = 1,
          .is_host_memory = false};
}

TEST(CacheSize, gives_a_group_with_a_window_what_all_windows_need_and_the_rest_to_the_other) {
  CacheSizeOptions of = options_of_two_groups();
  auto groups = choose_cache_groups(of).value();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_EQ(groups[1].window, 160);
  EXPECT_EQ(groups[1].n_blocks, 28 * 11 + 20) << "windows, and the rows in flight once";
  EXPECT_EQ(groups[0].n_blocks, 28 * 100) << "no more than can be used";
  of.free_memory_bytes = 3'000'000;
  groups = choose_cache_groups(of).value();
  EXPECT_EQ(groups[1].n_blocks, 28 * 11 + 20);
  EXPECT_EQ(groups[0].n_blocks, (3'000'000 - 5000 * 328) / 1000);
}

TEST(CacheSize, shares_what_is_little_so_that_sequences_of_one_length_fill_all_groups) {
  CacheSizeOptions of = options_of_two_groups();
  of.free_memory_bytes = 1'000'000;
  const auto groups = choose_cache_groups(of).value();
  EXPECT_EQ(groups[1].n_blocks, 28 * 5) << "28 sequences of 5 blocks are 840'000 bytes in both groups, of 6 blocks 1'008'000";
  EXPECT_EQ(groups[0].n_blocks, 300);
}

TEST(CacheSize, every_group_has_room_for_one_sequence_of_the_maximum_length) {
  CacheSizeOptions of = options_of_two_groups();
  const std::int32_t n_alone = 31 + 11;  // 480 positions and one more block, and a window of found blocks
  of.kv_cache_bytes = 100 * 1000 + n_alone * 5000;
  auto groups = choose_cache_groups(of).value();
  EXPECT_EQ(groups[0].n_blocks, 100);
  EXPECT_EQ(groups[1].n_blocks, n_alone);
  of.kv_cache_bytes -= 1;
  EXPECT_EQ(choose_cache_groups(of).error().code, ErrorCode::out_of_memory);
}

TEST(CacheSize, of_windows_alone_is_what_was_asked_for) {
  CacheSizeOptions of = options_of_two_groups();
  of.groups = {{.block_bytes = 5000, .window = 160}};
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 28 * 11 + 20) << "no more than can be used";
  of.kv_cache_bytes = 4'000'000;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 800);
}

}  // namespace
}  // namespace baton
