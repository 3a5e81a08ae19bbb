/// The size of the KV cache at its limits.
#include "engine/cache/cache_size.h"

#include <algorithm>
#include <vector>

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
          .free_memory_bytes = 12'000'000,
          .memory_utilization = 1,
          .is_host_memory = false};
}

TEST(CacheSize, gives_a_group_with_a_window_what_all_windows_need_and_the_rest_to_the_other) {
  CacheSizeOptions of = options_of_two_groups();
  auto groups = choose_cache_groups(of).value();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_EQ(groups[1].window, 160);
  EXPECT_EQ(groups[1].n_blocks, 87 * 11) << "28 contexts of 100 blocks are 87 times 512 tokens, and a window for each";
  EXPECT_EQ(groups[0].n_blocks, 28 * 100) << "no more than can be used";
  of.keeps_prefixes = false;
  groups = choose_cache_groups(of).value();
  EXPECT_EQ(groups[1].n_blocks, 28 * 11 + 20) << "windows, and the rows in flight once";
  EXPECT_EQ(groups[0].n_blocks, 28 * 100);
  of.keeps_prefixes = true;
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
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 87 * 11) << "a window for each 512 tokens, no more than can be used";
  of.free_memory_bytes = 2'000'000;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 36 * 11) << "what fits: 37 windows are 2'035'000 bytes";
  of.keeps_prefixes = false;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 28 * 11 + 20);
  of.kv_cache_bytes = 4'000'000;
  EXPECT_EQ(choose_cache_groups(of).value()[0].n_blocks, 800);
}

/// Bytes of a token in layers with a window and in the others, of models as they are: gpt-oss-20b, Gemma-3-27B, Gemma-2-9B.
struct WindowedModel {
  std::int32_t window;
  std::int64_t window_bytes;
  std::int64_t full_bytes;
};
constexpr WindowedModel kWindowedModels[]{{128, 24'576, 24'576}, {1024, 425'984, 81'920}, {4096, 172'032, 172'032}};

CacheSizeOptions options_of_model(const WindowedModel& model, std::int64_t bytes) {
  return {.groups = {{.block_bytes = 16 * model.full_bytes}, {.block_bytes = 16 * model.window_bytes, .window = model.window}},
          .block_len = 16,
          .max_model_len = 8192,
          .max_num_seqs = 8,
          .max_rows_in_flight = 4096,
          .kv_cache_bytes = bytes};
}

TEST(CacheSize, keeps_more_than_half_of_the_ends_that_the_best_division_keeps_at_any_distance) {
  for (const WindowedModel& model : kWindowedModels) {
    const std::int64_t bytes = 200'000'000'000;
    const auto groups = choose_cache_groups(options_of_model(model, bytes)).value();
    const double w = static_cast<double>(model.window_bytes), f = static_cast<double>(model.full_bytes);
    for (std::int32_t distance = 16; distance <= 65536; distance += distance < 4096 ? 16 : 1024) {
      const double seen = std::min<double>(distance, model.window + 16);  // tokens of an end in a group with a window
      const double kept = std::min(16.0 * groups[0].n_blocks / distance, 16.0 * groups[1].n_blocks / seen);
      const double best = static_cast<double>(bytes) / (distance * f + seen * w);
      // Groups with a narrow window keep less where ends are closer than kTokensPerEnd.
      if (distance >= kTokensPerEnd || model.window >= kTokensPerEnd)
        EXPECT_GT(kept, 0.99 * (w + f) / (2 * w + f) * best) << "window " << model.window << ", an end for " << distance;
      else
        EXPECT_GT(kept, 0.4 * best) << "window " << model.window << ", an end for " << distance;
    }
  }
}

TEST(CacheSize, a_group_with_a_window_has_at_least_what_running_sequences_need) {
  for (const WindowedModel& model : kWindowedModels)
    for (const std::int64_t gigabytes : {6, 12, 24, 48, 96, 192}) {
      CacheSizeOptions of = options_of_model(model, gigabytes * 1'000'000'000);
      const auto more = choose_cache_groups(of);
      of.keeps_prefixes = false;
      const auto needed = choose_cache_groups(of);
      ASSERT_EQ(more.has_value(), needed.has_value()) << "nothing that started before is refused";
      if (!more) continue;
      EXPECT_GE((*more)[1].n_blocks, (*needed)[1].n_blocks);
      EXPECT_GE((*more)[0].n_blocks, 8192 / 16) << "one sequence of the maximum length";
      EXPECT_LE((*more)[0].n_blocks * of.groups[0].block_bytes + (*more)[1].n_blocks * of.groups[1].block_bytes,
                of.kv_cache_bytes);
    }
}

TEST(CacheSize, counts_the_ends_that_every_group_with_a_window_keeps) {
  EXPECT_FALSE(n_kept_ends(std::vector<CacheGroup>{{.n_blocks = 100}}, 16));
  EXPECT_EQ(n_kept_ends(std::vector<CacheGroup>{{.n_blocks = 100}, {.n_blocks = 95, .window = 128}}, 16), 10);
  EXPECT_EQ(n_kept_ends(std::vector<CacheGroup>{{.n_blocks = 44, .window = 160}, {.n_blocks = 95, .window = 128}}, 16), 4);
}

TEST(CacheSize, a_model_without_windows_gets_what_it_got_before_there_were_ends) {
  for (const std::int64_t bytes : {1'600'000LL, 7'777'777LL, 123'456'789LL, 60'000'000'000LL})
    for (const std::int32_t n_seqs : {1, 8, 256})
      for (const bool keeps_prefixes : {true, false}) {
        CacheSizeOptions of{.groups = {{.block_bytes = 700}, {.block_bytes = 900}},
                            .block_len = 16,
                            .max_model_len = 16000,
                            .max_num_seqs = n_seqs,
                            .max_rows_in_flight = 4096,
                            .kv_cache_bytes = bytes,
                            .keeps_prefixes = keeps_prefixes};
        const auto expect_each = [&](std::int64_t n_blocks) {
          const auto groups = choose_cache_groups(of).value();
          EXPECT_EQ(groups[0].n_blocks, n_blocks);
          EXPECT_EQ(groups[1].n_blocks, n_blocks);
        };
        expect_each(bytes / 1600);
        of.kv_cache_bytes = 0;
        of.free_memory_bytes = bytes;
        of.memory_utilization = 1;
        expect_each(std::min<std::int64_t>(bytes / 1600, (n_seqs + 8) * 1000));
      }
}

}  // namespace
}  // namespace baton
