/// How sampling on CUDA cuts rows into parts and what its lists contain. This is pure arithmetic and needs no device: the
/// lists are made here as the kernel makes them.
#include "kernels/cuda/sampling/parts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

LogitKey key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value == 0 ? 0.0f : value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The logits of each thread of a part.
std::vector<std::vector<float>> threads_of_part(const std::vector<float>& row, std::int32_t part) {
  const auto n_vocab = static_cast<std::int32_t>(row.size());
  std::vector<std::vector<float>> threads(kGatherThreads);
  for (int unit = 0; unit < kUnitsOfPart; ++unit) {
    const std::int32_t first = first_of_unit(part, n_parts_of(n_vocab), unit);
    for (std::int32_t id = first; id < std::min(first + kUnitTokens, n_vocab); ++id)
      threads[static_cast<std::size_t>(unit % 8 * 32 + unit / 8 % 4 * 8 + (id - first) / kIdsAtOnce)].push_back(
          row[static_cast<std::size_t>(id)]);
  }
  return threads;
}

struct RowList {
  LogitKey threshold = 0;
  std::vector<LogitKey> keys;  ///< of all parts' lists, from the row's threshold on
  std::size_t longest = 0;     ///< list of a part
};

/// The list of a row as the kernels make it, with room for everything.
RowList list_of(const std::vector<float>& row) {
  const std::int32_t n_parts = n_parts_of(static_cast<std::int32_t>(row.size()));
  RowList list;
  for (std::int32_t part = 0; part < n_parts; ++part) {
    std::vector<LogitKey> keys;
    std::vector<LogitKey> largest;
    for (const std::vector<float>& thread : threads_of_part(row, part)) {
      for (const float value : thread) keys.push_back(key_of(value));
      largest.push_back(thread.empty() ? key_of(kNever) : key_of(*std::ranges::max_element(thread)));
    }
    const LogitKey best = *std::ranges::max_element(largest);
    if (best < kLeastFiniteKey) {
      list.threshold = std::max(list.threshold, kLeastFiniteKey);
      continue;
    }
    std::vector<LogitKey> of_warps;
    const auto rank = static_cast<std::ptrdiff_t>(near_rank(n_parts));
    for (auto warp = largest.begin(); warp != largest.end(); warp += 32) {
      std::sort(warp, warp + 32, std::greater());
      of_warps.push_back(warp[rank - 1]);
    }
    std::ranges::sort(of_warps);
    const LogitKey threshold = std::max(of_warps[kSmallerWarps], kLeastFiniteKey);
    std::erase_if(keys, [&](LogitKey key) { return key < threshold; });
    list.longest = std::max(list.longest, keys.size());
    list.keys.insert(list.keys.end(), keys.begin(), keys.end());
    list.threshold = std::max(list.threshold, threshold);
  }
  std::erase_if(list.keys, [&](LogitKey key) { return key < list.threshold; });
  return list;
}

/// The keys of a row from `threshold` on, largest first.
std::vector<LogitKey> keys_from(const std::vector<float>& row, LogitKey threshold) {
  std::vector<LogitKey> keys;
  for (const float value : row)
    if (key_of(value) >= threshold) keys.push_back(key_of(value));
  std::ranges::sort(keys, std::greater());
  return keys;
}

std::vector<float> random_row(std::uint32_t seed, std::size_t n, float step) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<float> row(n);
  for (float& value : row) value = step == 0 ? normal(random) : std::round(normal(random) / step) * step;
  return row;
}

TEST(SamplingParts, every_token_is_in_one_part) {
  for (const std::int32_t n_vocab : {1, 7, 127, 128, 129, 8191, 8192, 8193, 32000, 50257, 128256, 262144}) {
    std::vector<int> seen(static_cast<std::size_t>(n_vocab), 0);
    const std::int32_t n_parts = n_parts_of(n_vocab);
    for (std::int32_t part = 0; part < n_parts; ++part) {
      EXPECT_LT(first_of_unit(part, n_parts, 0), n_vocab) << "an empty part";
      for (int unit = 0; unit < kUnitsOfPart; ++unit)
        for (std::int32_t i = 0; i < kUnitTokens; ++i) {
          const std::int32_t id = first_of_unit(part, n_parts, unit) + i;
          if (id < n_vocab) ++seen[static_cast<std::size_t>(id)];
        }
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int n) { return n == 1; })) << n_vocab;
  }
}

TEST(SamplingParts, lists_have_all_tokens_from_the_threshold_on) {
  for (const std::size_t n_vocab :
       {std::size_t{3}, std::size_t{100}, std::size_t{8193}, std::size_t{33001}, std::size_t{128256}})
    for (const float step : {0.0f, 0.5f}) {  // without and with many ties
      std::vector<float> row = random_row(static_cast<std::uint32_t>(n_vocab), n_vocab, step);
      for (std::size_t i = 0; i < n_vocab; i += 3) row[i] = kNever;
      RowList list = list_of(row);
      std::ranges::sort(list.keys, std::greater());
      EXPECT_EQ(list.keys, keys_from(row, list.threshold)) << n_vocab;
    }
}

TEST(SamplingParts, lists_are_long_enough_for_top_k_50_and_short) {
  for (const std::size_t n_vocab :
       {std::size_t{8192}, std::size_t{32000}, std::size_t{50257}, std::size_t{128256}, std::size_t{262144}})
    for (std::uint32_t seed = 0; seed < 5; ++seed)
      for (const float step : {0.0f, 0.03f}) {  // without ties, and about the step of bf16 at these logits
        const RowList list = list_of(random_row(seed, n_vocab, step));
        EXPECT_LE(list.longest, kNearRoom) << n_vocab;
        EXPECT_GE(list.keys.size(), 60u) << n_vocab;
        EXPECT_LE(list.keys.size(), 400u) << n_vocab;
      }
}

TEST(SamplingParts, likely_tokens_side_by_side_are_spread_over_the_parts) {
  for (const std::size_t n_likely : {70, 200, 512, 1000, 1024, 1500, 2048, 3000, 4096, 10000}) {
    std::vector<float> row = random_row(1, 128256, 0);
    for (std::size_t id = 0; id < n_likely; ++id) row[id] += 15;  // all of the most likely tokens
    const RowList list = list_of(row);
    EXPECT_LE(list.longest, kNearRoom) << n_likely;
    EXPECT_GE(list.keys.size(), 50u) << n_likely;
  }
}

TEST(SamplingParts, equal_and_few_finite_logits_are_all_in_the_lists) {
  EXPECT_EQ(list_of(std::vector<float>(20000, -3.0f)).keys.size(), 20000u);
  std::vector<float> few(20000, kNever);
  few[5] = -2;
  few[12345] = std::numeric_limits<float>::lowest();
  few[19999] = 7;
  const RowList list = list_of(few);
  EXPECT_EQ(list.keys.size(), 3u);
  EXPECT_EQ(list.threshold, kLeastFiniteKey) << "the list is complete";
}

TEST(SamplingParts, a_search_ends_at_a_threshold_that_enough_keys_reach) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<LogitKey> keys(200 + random() % 300);
    const auto n_values = static_cast<std::uint32_t>(round % 4 == 0 ? 2 + round % 9 : 1 << 30);  // few: ties
    for (LogitKey& key : keys) key = kLeastFiniteKey + random() % n_values;
    ThresholdSearch search{*std::ranges::min_element(keys), *std::ranges::max_element(keys) + 1, 192};
    const auto reached = [&](LogitKey key) {
      return static_cast<int>(std::ranges::count_if(keys, [&](LogitKey other) { return other >= key; }));
    };
    for (int n_steps = 0; !search.is_done(); ++n_steps) {
      ASSERT_LE(n_steps, 32);
      search.take(reached(search.middle()));
    }
    EXPECT_GE(reached(search.low), 192);
    if (n_values > 100) {
      EXPECT_LE(reached(search.low), 240);
    }
  }
}

TEST(SamplingParts, a_cut_by_top_k_or_of_all_likely_tokens_needs_no_others) {
  EXPECT_TRUE(cut_near(100, false, 50).is_all);
  EXPECT_EQ(cut_near(100, false, 50).n_left, 50);
  EXPECT_TRUE(cut_near(50, false, 50).is_all);
  EXPECT_FALSE(cut_near(49, false, 50).is_all);
  EXPECT_FALSE(cut_near(100, false, 0).is_all);
  EXPECT_TRUE(cut_near(20, true, 50).is_all);
  EXPECT_EQ(cut_near(20, true, 50).n_left, 20);
  EXPECT_EQ(cut_near(20, true, 3).n_left, 3);
}

}  // namespace
}  // namespace baton::cuda
