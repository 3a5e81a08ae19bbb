/// What shares take from a budget, and which are refused (server/limits/budget.h).
#include "server/limits/budget.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/grammar.h"

namespace baton {
namespace {

TEST(Budget, gives_until_it_is_used_up_and_takes_back) {
  Budget budget(/*limit=*/100, /*small=*/100);
  {
    BudgetShare first = budget.share();
    EXPECT_TRUE(first.grow(60));
    BudgetShare second = budget.share();
    EXPECT_FALSE(second.grow(41));
    EXPECT_EQ(budget.used(), 60);
    EXPECT_EQ(budget.n_refused(), 1);
    EXPECT_TRUE(second.grow(40));
    first.shrink(10);
    EXPECT_EQ(budget.used(), 90);
    EXPECT_EQ(first.size(), 50);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST(Budget, keeps_a_quarter_for_small_shares) {
  Budget budget(/*limit=*/100, /*small=*/5);
  BudgetShare large = budget.share();
  EXPECT_FALSE(large.grow(76));
  EXPECT_TRUE(large.grow(75));
  EXPECT_FALSE(large.grow(1));
  std::vector<BudgetShare> small(6);
  for (BudgetShare& share : small) share = budget.share();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(small[static_cast<std::size_t>(i)].grow(5));
  EXPECT_FALSE(small[5].grow(1));
}

TEST(Budget, a_share_gives_back_once_wherever_it_is_moved) {
  Budget budget(/*limit=*/10, /*small=*/10);
  BudgetShare first = budget.share();
  ASSERT_TRUE(first.grow(4));
  BudgetShare second = std::move(first);
  EXPECT_EQ(second.size(), 4);
  first = BudgetShare();
  EXPECT_EQ(budget.used(), 4);
  second.release();
  EXPECT_EQ(budget.used(), 0);
}

TEST(Budget, a_share_of_none_has_no_limit) {
  BudgetShare share;
  EXPECT_TRUE(share.grow(std::int64_t{1} << 40));
}

TEST(Budget, is_never_exceeded_by_several_threads) {
  Budget budget(/*limit=*/1000, /*small=*/1000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 10'000; ++round) {
        BudgetShare share = budget.share();
        const bool has_grown = share.grow(300);
        EXPECT_LE(budget.used(), 1000 + 3 * 300) << has_grown;  // what others try to take is counted for a moment
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used(), 0);
}

TEST(Budget, limits_follow_the_memory) {
  EXPECT_EQ(default_client_memory(std::int64_t{3} << 30), (std::int64_t{3} << 30) / 8);
  EXPECT_EQ(default_client_memory(1 << 20), 64 << 20);
  EXPECT_EQ(default_client_memory(std::int64_t{1} << 50), std::int64_t{4} << 30);
  const BudgetLimits limits = budget_limits(1 << 30);
  EXPECT_EQ(limits.body_bytes, 192 << 20);
  EXPECT_EQ(limits.unsent_bytes, 192 << 20);
  EXPECT_EQ(limits.header_bytes, 128 << 20);
  EXPECT_EQ(budget_limits(64 << 20).header_bytes, 32 << 20) << "ordinary headers of all connections find room";
  EXPECT_EQ(limits.scores, 3 << 19);
  EXPECT_EQ(limits.request_bytes, 128 << 20);
  EXPECT_EQ(limits.compile_bytes, 192 << 20);
  EXPECT_EQ(limits.scores_per_answer, 1 << 20);
  EXPECT_EQ(limits.values_per_body, 4 << 20);
  EXPECT_EQ(limits.header_bytes + limits.body_bytes + limits.unsent_bytes + limits.scores * kScoreBytes + limits.request_bytes +
                limits.compile_bytes,
            1 << 30);
  EXPECT_EQ(budget_limits(64 << 20).scores_per_answer, (9 << 20) / 128);
}

/// The table of docs/protection.md.
TEST(Budget, one_compilation_may_take_what_the_documents_say) {
  struct Row {
    std::int64_t memory, client, compiles, one;  // MiB
  };
  const std::int64_t most = grammar::GrammarLimits().work.bytes >> 20;
  EXPECT_EQ(most, 224);
  for (const Row& row : {Row{512, 64, 12, 9}, Row{1024, 128, 24, 18}, Row{3072, 384, 72, 54}, Row{8192, 1024, 192, 144},
                         Row{16384, 2048, 384, 224}, Row{24576, 3072, 576, 224}, Row{65536, 4096, 768, 224}}) {
    const std::int64_t client = default_client_memory(row.memory << 20);
    EXPECT_EQ(client >> 20, row.client) << row.memory;
    const Budgets budgets(budget_limits(client));
    EXPECT_EQ(budgets.compiles.limit() >> 20, row.compiles) << row.memory;
    EXPECT_EQ(std::min(budgets.compiles.most_of_one() >> 20, most), row.one) << row.memory;
  }
}

}  // namespace
}  // namespace baton
