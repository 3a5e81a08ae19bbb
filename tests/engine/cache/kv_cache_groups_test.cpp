/// KvCache with several layer groups: by example, and random sequences in a tiny cache.
#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "engine/cache/kv_cache.h"
#include "support/kv_tables.h"
#include "support/long_run.h"

namespace baton {
namespace {

constexpr std::int32_t kGroupBlockLen = 4;

using testing::check_all;
using testing::count_up;

KvCache make_cache(std::vector<CacheGroup> groups, std::int32_t max_rows_in_flight, bool caching = true) {
  return KvCache({.block_len = kGroupBlockLen,
                  .groups = std::move(groups),
                  .max_rows_in_flight = max_rows_in_flight,
                  .enable_prefix_caching = caching});
}

/// Computes a prompt in chunks of 4 and ends. Blocks that windows have left are given back on the way.
void compute(KvCache& cache, const std::vector<TokenId>& tokens, std::int64_t step) {
  BlockTable table;
  const auto n = static_cast<std::int32_t>(tokens.size());
  cache.begin(table, tokens, n - 1, step);
  for (std::int32_t position = table.n_cached_blocks * kGroupBlockLen; position < n;) {
    position = std::min(n, position + 4);
    ASSERT_TRUE(cache.extend(table, position));
    cache.publish(table, tokens, position, step + 1);
    cache.free_behind_window(table, position, n);
    check_all(cache, {&table});
  }
  cache.release(table, tokens, n, step + 1);
  check_all(cache, {});
}

TEST(KvCacheGroups, a_group_with_a_window_gives_back_the_blocks_that_it_has_left) {
  KvCache cache = make_cache({{.n_blocks = 20}, {.n_blocks = 6, .window = 6}}, 4, /*caching=*/false);
  const auto tokens = count_up(0, 80);
  BlockTable table;
  cache.begin(table, tokens, 79, 0);
  for (std::int32_t position = 0; position < 80; ++position) {
    ASSERT_TRUE(cache.extend(table, position + 1));
    cache.free_behind_window(table, position + 1, 80);
    // The next row, at position + 1, sees the five keys before it.
    EXPECT_EQ(table.groups[1].first_block, std::max(0, position + 2 - 6) / kGroupBlockLen);
    EXPECT_EQ(table.groups[0].first_block, 0);
    check_all(cache, {&table});
  }
  EXPECT_EQ(cache.n_available(0), 0);
  EXPECT_EQ(cache.n_available(1), 4) << "of 20 blocks in the other group it holds 2 here";
  cache.release(table, tokens, 80, 1);
  EXPECT_EQ(cache.n_used(), 0);
}

TEST(KvCacheGroups, a_second_request_finds_as_much_as_every_group_still_holds) {
  KvCache cache = make_cache({{.n_blocks = 40}, {.n_blocks = 12, .window = 6}}, 4);
  const auto tokens = count_up(0, 40);
  compute(cache, tokens, 0);
  BlockTable table;
  EXPECT_EQ(cache.find(table, tokens, 39, 2).n_ready, 9) << "nothing is dropped yet";
  // Another prompt needs 6 blocks of the group with a window: the blocks of positions 0 to 15 are dropped, which were
  // left first.
  compute(cache, count_up(100, 24), 2);
  EXPECT_EQ(cache.n_cached(0), 16);
  EXPECT_EQ(cache.n_cached(1), 12);
  EXPECT_EQ(cache.find(table, tokens, 39, 4).n_ready, 9) << "the end of the prompt kept its window";
  auto other_end = std::vector(tokens.begin(), tokens.begin() + 12);
  other_end.push_back(999);
  BlockTable other;
  EXPECT_EQ(cache.find(other, other_end, 12, 4).n_ready, 0) << "the window before position 12 is dropped";
  cache.begin(table, tokens, 39, 4);
  EXPECT_EQ(table.groups[0].first_block, 0);
  EXPECT_EQ(table.groups[1].first_block, 7);
  check_all(cache, {&table});
  cache.release(table, tokens, 36, 5);
  // A sequence that computes dropped blocks again gives them to the tree, which still has their entries.
  compute(cache, other_end, 5);
  BlockTable again;
  EXPECT_EQ(cache.find(again, other_end, 12, 7).n_ready, 3);
  EXPECT_EQ(cache.n_cached(0), 16) << "computed twice, kept once";
  check_all(cache, {});
}

TEST(KvCacheGroups, keeps_the_window_of_a_prompt_whose_answer_continued) {
  KvCache cache = make_cache({{.n_blocks = 80}, {.n_blocks = 14, .window = 6}}, 4);
  const auto prompt = count_up(0, 24);
  auto tokens = prompt;
  for (const TokenId token : count_up(50, 24)) tokens.push_back(token);
  BlockTable table;
  cache.begin(table, prompt, 23, 0);
  for (std::int32_t position = 4; position <= 48; position += 4) {
    ASSERT_TRUE(cache.extend(table, position));
    cache.publish(table, tokens, position, position);
    cache.free_behind_window(table, position, 24);
  }
  cache.release(table, tokens, 48, 50);
  compute(cache, count_up(100, 40), 50);  // takes 10 blocks
  BlockTable again;
  EXPECT_EQ(cache.find(again, prompt, 23, 90).n_ready, 5) << "the prompt again";
  BlockTable longer;
  EXPECT_EQ(cache.find(longer, tokens, 47, 90).n_ready, 6) << "of the answer only the end is kept";
  EXPECT_EQ(cache.find(longer, tokens, 48, 90).n_ready, 12);
  check_all(cache, {});
}

/// A sequence in a cache of windows, which generates tokens one at a time.
struct WindowedSequence {
  BlockTable table;
  std::vector<TokenId> tokens;
  std::int32_t prompt_len = 0;

  void begin(KvCache& cache, std::vector<TokenId> prompt, std::int64_t step) {
    tokens = std::move(prompt);
    prompt_len = static_cast<std::int32_t>(tokens.size());
    cache.begin(table, tokens, prompt_len - 1, step);
    fill(cache, table.n_cached_blocks * kGroupBlockLen, step);
  }
  void generate(KvCache& cache, TokenId token, std::int64_t step) {
    tokens.push_back(token);
    fill(cache, static_cast<std::int32_t>(tokens.size()) - 1, step);
  }
  void end(KvCache& cache, std::int64_t step) { cache.release(table, tokens, static_cast<std::int32_t>(tokens.size()), step); }
  void fill(KvCache& cache, std::int32_t from, std::int64_t step) {
    const auto n = static_cast<std::int32_t>(tokens.size());
    while (from < n) {
      from = std::min(n, from + 8);
      ASSERT_TRUE(cache.extend(table, from));
      cache.publish(table, tokens, from, step);
      cache.free_behind_window(table, from, prompt_len);
    }
  }
};

std::vector<TokenId> prompt_of_stranger(int which, std::size_t n) {
  return count_up(static_cast<TokenId>(1000 * (which + 1)), n);
}

TEST(KvCacheGroups, lacks_whole_ends_where_many_sequences_left_theirs_in_turn) {
  constexpr int kSequences = 128;
  // A window has 4 blocks, and one more while a sequence runs. While 24 tokens follow, all sequences leave the ends of their
  // prompts at the same time. The cache lacks the blocks of 20 ends.
  KvCache cache = make_cache({{.n_blocks = 9000}, {.n_blocks = kSequences * (4 + 5) - 20 * 4, .window = 16}}, 8);
  std::vector<WindowedSequence> all(kSequences);
  for (int i = 0; i < kSequences; ++i) all[static_cast<std::size_t>(i)].begin(cache, prompt_of_stranger(i, 62), i);
  for (TokenId token = 0; token < 24; ++token)
    for (WindowedSequence& of : all) of.generate(cache, token, kSequences + token);
  for (WindowedSequence& of : all) of.end(cache, 200);
  int n_prompts = 0, n_answers = 0;
  for (int i = 0; i < kSequences; ++i) {
    BlockTable table, longer;
    n_prompts += cache.find(table, prompt_of_stranger(i, 62), 61, 300).n_ready == 15 ? 1 : 0;
    const auto& tokens = all[static_cast<std::size_t>(i)].tokens;
    n_answers += cache.find(longer, tokens, static_cast<std::int32_t>(tokens.size()), 300).n_ready == 21 ? 1 : 0;
  }
  EXPECT_GE(n_prompts, kSequences - 25) << "a missing block costs one sequence its end, not all of them";
  EXPECT_LT(n_prompts, kSequences) << "the cache was too large to show it";
  EXPECT_EQ(n_answers, kSequences);
  check_all(cache, {});
}

TEST(KvCacheGroups, keeps_the_end_of_an_answer_wherever_in_a_block_it_is) {
  for (int n_new = 1; n_new <= 4 * kGroupBlockLen; ++n_new) {
    KvCache cache = make_cache({{.n_blocks = 400}, {.n_blocks = 14, .window = 8}}, 8);
    WindowedSequence first;
    first.begin(cache, count_up(0, 30), 0);
    for (int i = 0; i < n_new; ++i) first.generate(cache, static_cast<TokenId>(500 + i), 1);
    first.end(cache, 2);
    compute(cache, count_up(100, 80), 2);  // takes all blocks that sequences left behind their windows
    BlockTable table;
    const auto n = static_cast<std::int32_t>(first.tokens.size());
    EXPECT_EQ(cache.find(table, first.tokens, n, 90).n_ready, n / kGroupBlockLen) << n_new << " tokens";
    check_all(cache, {});
  }
}

TEST(KvCacheGroups, a_prompt_that_ends_at_once_keeps_its_window_and_no_more) {
  KvCache cache = make_cache({{.n_blocks = 400}, {.n_blocks = 40, .window = 8}}, 64);
  for (int i = 0; i < 8; ++i) {
    WindowedSequence one;
    one.tokens = prompt_of_stranger(i, 62);
    cache.begin(one.table, one.tokens, 61, i);
    ASSERT_TRUE(cache.extend(one.table, 62));
    cache.release(one.table, one.tokens, 62, i + 1);  // the scheduler ends it in the commit of its only step
  }
  for (int i = 0; i < 8; ++i) {
    BlockTable table;
    EXPECT_EQ(cache.find(table, prompt_of_stranger(i, 62), 61, 90).n_ready, 15) << i;
  }
  check_all(cache, {});
}

TEST(KvCacheGroups, keeps_the_place_where_prompts_fork_from_the_second_on) {
  KvCache cache = make_cache({{.n_blocks = 4000}, {.n_blocks = 60, .window = 8}}, 8);
  const auto system = count_up(0, 80);
  std::int64_t step = 0;
  const auto ask = [&](TokenId user) {
    auto prompt = system;
    for (const TokenId token : count_up(user, 40)) prompt.push_back(token);
    WindowedSequence one;
    one.begin(cache, std::move(prompt), ++step);
    const std::int32_t n_found = one.table.n_found_blocks;
    one.end(cache, ++step);
    for (int i = 0; i < 6; ++i, ++step) compute(cache, prompt_of_stranger(static_cast<int>(step), 60), step);
    return n_found;
  };
  EXPECT_EQ(ask(500), 0);
  EXPECT_EQ(ask(600), 0) << "where the first continued alone, nothing was kept";
  EXPECT_EQ(ask(700), 20) << "the second showed where users differ";
  EXPECT_EQ(ask(800), 20);
  check_all(cache, {});
}

TEST(KvCacheGroups, a_conversation_that_continued_gives_up_where_it_was) {
  KvCache cache = make_cache({{.n_blocks = 4000}, {.n_blocks = 30, .window = 8}}, 8);
  WindowedSequence first, second;
  first.begin(cache, count_up(0, 41), 0);
  for (int i = 0; i < 40; ++i) first.generate(cache, static_cast<TokenId>(500 + i), 1);
  first.end(cache, 2);
  auto next = first.tokens;
  for (const TokenId token : count_up(700, 40)) next.push_back(token);
  second.begin(cache, next, 3);
  EXPECT_EQ(second.table.n_found_blocks, 20);
  for (int i = 0; i < 40; ++i) second.generate(cache, static_cast<TokenId>(800 + i), 4);
  second.end(cache, 5);
  // 30 blocks: of the ends of two prompts and an answer, and what a stranger needs for a chunk.
  compute(cache, count_up(5000, 120), 6);
  BlockTable table;
  const auto n = static_cast<std::int32_t>(second.tokens.size());
  EXPECT_EQ(cache.find(table, second.tokens, n, 90).n_ready, n / kGroupBlockLen) << "the end of the last answer";
  EXPECT_EQ(cache.find(table, next, static_cast<std::int32_t>(next.size()) - 1, 90).n_ready, 30) << "of the last prompt";
  EXPECT_EQ(cache.find(table, first.tokens, 81, 90).n_ready, 10) << "of the first answer no longer";
  check_all(cache, {});
}

TEST(KvCacheGroups, a_reserve_outlasts_a_cache_that_others_fill) {
  KvCache cache = make_cache({{.n_blocks = 60}, {.n_blocks = 16, .window = 6}}, 4);
  const auto shared = count_up(0, 16);
  compute(cache, shared, 0);
  auto tokens = shared;
  for (const TokenId token : count_up(50, 84)) tokens.push_back(token);
  BlockTable table, sharer;
  cache.begin(table, tokens, 99, 2);
  EXPECT_EQ(table.n_cached_blocks, 4);
  ASSERT_TRUE(cache.reserve(table, 100));
  EXPECT_EQ(table.groups[0].blocks.size(), 25u);
  EXPECT_EQ(table.groups[1].blocks.size(), 4u) << "what it will need is in reserve";
  cache.begin(sharer, shared, 16, 2);  // holds blocks that the table will leave behind its window
  const auto strange = count_up(500, 60);
  std::vector<BlockTable> others(3);
  for (BlockTable& other : others) {
    cache.begin(other, strange, 59, 2);
    ASSERT_TRUE(cache.extend(other, std::min(4, cache.n_available(1)) * kGroupBlockLen));
  }
  EXPECT_EQ(cache.n_available(1), 0);
  for (std::int32_t position = 16; position < 100; position += 2) {
    ASSERT_TRUE(cache.extend(table, position + 2)) << position;
    cache.publish(table, tokens, position + 2, 3);
    cache.free_behind_window(table, position + 2, 100);
    check_all(cache, {&table, &sharer, &others[0], &others[1], &others[2]});
  }
  cache.release(table, tokens, 100, 4);
  EXPECT_EQ(cache.find(table, tokens, 100, 4).n_ready, 25) << "what it kept to itself it publishes at its end";
  cache.release(sharer, shared, 16, 4);
  for (BlockTable& other : others) cache.release(other, strange, 0, 4);
  check_all(cache, {});
  EXPECT_EQ(cache.n_used(), 0);
}

TEST(KvCacheGroups, a_pin_holds_the_window_of_its_end) {
  KvCache cache = make_cache({{.n_blocks = 40}, {.n_blocks = 8, .window = 5}}, 4);
  const auto tokens = count_up(0, 24);
  compute(cache, tokens, 0);
  const KvCache::Pin pin = cache.pin({}, tokens);
  EXPECT_EQ(pin.n_blocks, 6);
  EXPECT_EQ(cache.n_pinned(0), 6);
  EXPECT_EQ(cache.n_pinned(1), 1);
  compute(cache, count_up(100, 60), 2);
  BlockTable table;
  EXPECT_EQ(cache.find(table, tokens, 24, 9).n_ready, 6);
  cache.unpin(pin);
  EXPECT_EQ(cache.n_used(), 0);
  check_all(cache, {});
}

/// The contents that the storage would have: for each block of each group the text up to its end. A sequence must hold
/// the blocks that its next row sees.
struct RandomGroupLoad {
  struct Live {
    BlockTable table;
    std::vector<TokenId> tokens;
    std::int32_t n_planned = 0;
    std::int32_t n_committed = 0;
    bool has_reserve = false;
  };
  static constexpr std::int32_t kMaxRows = 6;  ///< of one step

  RandomGroupLoad(std::uint32_t seed, const std::vector<CacheGroup>& groups, bool caching)
      : rng(seed), groups(groups), cache(make_cache(groups, 2 * kMaxRows, caching)) {
    for (const CacheGroup& group : groups) content.emplace_back(static_cast<std::size_t>(group.n_blocks));
  }

  static std::string text_of(const Live& live, std::int32_t end) {
    std::string text;
    for (std::int32_t i = 0; i < end; ++i) text += std::to_string(live.tokens[static_cast<std::size_t>(i)]) + ",";
    return text;
  }
  /// Full blocks that the row at n_committed sees; a step in flight may be computing them.
  void check_window(const Live& live) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const GroupTable& table = live.table.groups[g];
      const std::int32_t first =
          groups[g].has_window() ? std::max(0, live.n_committed + 1 - groups[g].window) / kGroupBlockLen : 0;
      ASSERT_LE(table.first_block, first) << "a block that a row in flight sees was given back";
      for (std::int32_t i = first; i < live.n_planned / kGroupBlockLen; ++i) {
        ASSERT_EQ(content[g][static_cast<std::size_t>(table.blocks[static_cast<std::size_t>(i)].value)],
                  text_of(live, (i + 1) * kGroupBlockLen));
      }
    }
  }
  void begin(std::int64_t step) {
    Live live;
    live.tokens.resize(1 + rng() % 60);
    for (TokenId& token : live.tokens) token = static_cast<TokenId>(rng() % 16 == 0);
    const auto n = static_cast<std::int32_t>(live.tokens.size());
    const auto found = cache.find(live.table, live.tokens, n - 1, step);
    std::vector<std::int32_t> n_available;
    for (int g = 0; g < cache.n_groups(); ++g) n_available.push_back(cache.n_available(g));
    cache.begin(live.table, live.tokens, n - 1, step);
    ASSERT_EQ(found.n_ready, live.table.n_cached_blocks);
    for (int g = 0; g < cache.n_groups(); ++g)
      ASSERT_EQ(cache.n_available(g), n_available[static_cast<std::size_t>(g)] - found.n_unheld[static_cast<std::size_t>(g)]);
    live.n_planned = live.n_committed = live.table.n_cached_blocks * kGroupBlockLen;
    n_found += live.table.n_cached_blocks;
    if (rng() % 4 == 0) live.has_reserve = cache.reserve(live.table, n);
    ASSERT_NO_FATAL_FAILURE(check_window(live));
    all.push_back(std::move(live));
  }
  void plan(Live& live, std::int64_t step) {
    if (live.n_planned - live.n_committed > kMaxRows) return;
    const auto n_rows = 1 + static_cast<std::int32_t>(rng() % kMaxRows);
    const auto n = std::min(static_cast<std::int32_t>(live.tokens.size()), live.n_planned + n_rows);
    if (!cache.extend(live.table, n)) {
      ASSERT_FALSE(live.has_reserve) << "a reserve was too small";
      return;
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::int32_t i = live.n_planned; i < n; ++i) {
        const BlockId block = live.table.groups[g].blocks[static_cast<std::size_t>(i / kGroupBlockLen)];
        ASSERT_GE(i / kGroupBlockLen, live.table.n_cached_blocks) << "a shared block would be written";
        content[g][static_cast<std::size_t>(block.value)] = (i + 1) % kGroupBlockLen == 0 ? text_of(live, i + 1) : "";
      }
    }
    live.n_planned = n;
    cache.publish(live.table, live.tokens, n, step + 1);
  }
  void commit(Live& live) {
    live.n_committed = live.n_planned;
    cache.free_behind_window(live.table, live.n_committed, static_cast<std::int32_t>(live.tokens.size()));
  }
  void run(int n_rounds) {
    for (std::int64_t step = 0; step < n_rounds; ++step) {
      const auto choice = rng() % 12;
      if (choice < 2 && all.size() < 5) {
        ASSERT_NO_FATAL_FAILURE(begin(step));
      } else if (choice < 7 && !all.empty()) {
        ASSERT_NO_FATAL_FAILURE(plan(all[rng() % all.size()], step));
      } else if (choice < 10 && !all.empty()) {
        commit(all[rng() % all.size()]);
      } else if (choice == 10 && !all.empty()) {
        const std::size_t which = rng() % all.size();
        cache.release(all[which].table, all[which].tokens, all[which].n_planned, step + 1);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
      } else if (choice == 11 && cache.has_prefix_caching()) {
        if (pins.size() > 1 || (!pins.empty() && rng() % 2 == 0)) {
          cache.unpin(pins.front());
          pins.erase(pins.begin());
        } else if (!all.empty()) {
          pins.push_back(cache.pin({}, all[rng() % all.size()].tokens));
        }
      }
      std::vector<const BlockTable*> tables;
      for (const Live& live : all) {
        ASSERT_NO_FATAL_FAILURE(check_window(live));
        tables.push_back(&live.table);
      }
      cache.check_invariants(tables);
    }
    for (Live& live : all) cache.release(live.table, live.tokens, live.n_planned, n_rounds + 1);
    for (const auto& pin : pins) cache.unpin(pin);
    ASSERT_EQ(cache.n_used(), 0);
    cache.check_invariants({});
  }

  std::mt19937 rng;
  std::vector<CacheGroup> groups;
  KvCache cache;
  std::vector<std::vector<std::string>> content;  ///< [group][block]
  std::vector<Live> all;
  std::vector<KvCache::Pin> pins;
  std::int32_t n_found = 0;
};

TEST(KvCacheGroups, hold_what_every_row_sees_over_random_operations) {
  const std::vector<std::vector<CacheGroup>> cases{
      {{.n_blocks = 40}, {.n_blocks = 24, .window = 6}},
      {{.n_blocks = 24, .window = 9}, {.n_blocks = 50}, {.n_blocks = 16, .window = 2}},
      {{.n_blocks = 20, .window = 5}},
      {{.n_blocks = 26, .window = 11}, {.n_blocks = 20, .window = 4}},
  };
  for (const std::vector<CacheGroup>& groups : cases) {
    for (const bool caching : {true, false}) {
      std::int32_t n_found = 0;
      for (std::uint32_t seed = 1; seed <= (testing::is_long_run() ? 8u : 1u); ++seed) {
        SCOPED_TRACE(::testing::Message() << groups.size() << " groups, window " << groups[0].window << ", seed " << seed);
        RandomGroupLoad load(seed, groups, caching);
        load.run(4000);
        if (HasFailure()) return;
        n_found += load.n_found;
      }
      EXPECT_TRUE(n_found > 200 || !caching) << n_found << " blocks were found";
    }
  }
}

}  // namespace
}  // namespace baton
