/// PrefixTree: by example, and compared with a naive model of single blocks over random operations.
#include "engine/cache/prefix_tree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr std::int32_t kTreeBlockLen = 2;

/// Tokens with their hashes, which a key refers to.
struct Prompt {
  std::vector<TokenId> tokens;
  std::vector<BlockHash> hashes;

  Prompt(const CacheScope& scope, std::vector<TokenId> of) : tokens(std::move(of)) {
    extend_hashes(scope, tokens, kTreeBlockLen, hashes);
  }
  explicit Prompt(std::vector<TokenId> of) : Prompt(CacheScope{}, std::move(of)) {}
  PrefixKey key() const { return {tokens, hashes}; }
  PrefixKey key(std::size_t n_blocks) const { return {tokens, std::span(hashes).first(n_blocks)}; }
};

/// Inserts the missing entries of a prompt with block numbers from `first_block` on. Keeps and returns the reference.
PrefixTree::Node* insert_all(PrefixTree& tree, const Prompt& prompt, std::int32_t first_block, std::int64_t usable_from = 0) {
  PrefixTree::Match match = tree.match(prompt.key(), PrefixTree::kAnyStep);
  tree.acquire(match.node);
  PrefixTree::Node* node = match.node;
  for (std::size_t i = static_cast<std::size_t>(match.n_blocks); i < prompt.hashes.size(); ++i) {
    const BlockId block{first_block + static_cast<std::int32_t>(i)};
    node = tree.insert(node, prompt.key(), static_cast<std::int32_t>(i), std::span(&block, 1), usable_from);
  }
  return node;
}

std::vector<std::int32_t> values(const std::vector<BlockId>& blocks) {
  std::vector<std::int32_t> numbers;
  for (const BlockId block : blocks) numbers.push_back(block.value);
  return numbers;
}
std::vector<std::int32_t> values(const std::vector<GroupBlock>& blocks) {
  std::vector<std::int32_t> numbers;
  for (const GroupBlock& of : blocks) numbers.push_back(of.block.value);
  return numbers;
}

using Numbers = std::vector<std::int32_t>;

TEST(PrefixTree, finds_the_longest_prefix_in_whole_blocks) {
  PrefixTree tree(kTreeBlockLen);
  tree.release(insert_all(tree, Prompt({1, 2, 3, 4, 5, 6}), 10));
  EXPECT_EQ(values(tree.match(Prompt({1, 2, 3, 4, 9, 9}).key(), 0).blocks), (Numbers{10, 11}));
  EXPECT_EQ(values(tree.match(Prompt({1, 2, 3, 4, 5, 6, 7}).key(), 0).blocks), (Numbers{10, 11, 12}));
  EXPECT_EQ(values(tree.match(Prompt({1, 2, 3}).key(), 0).blocks), (Numbers{10}));
  EXPECT_TRUE(tree.match(Prompt({2, 2, 3, 4}).key(), 0).blocks.empty());
  EXPECT_TRUE(tree.match(Prompt(std::vector<TokenId>{}).key(), 0).blocks.empty());
  tree.check_invariants({});
}

TEST(PrefixTree, splits_where_prompts_part_and_keeps_both_references) {
  PrefixTree tree(kTreeBlockLen);
  const Prompt first({1, 2, 3, 4, 5, 6}), second({1, 2, 3, 4, 7, 8});
  PrefixTree::Node* a = insert_all(tree, first, 10);
  PrefixTree::Node* b = insert_all(tree, second, 20);
  EXPECT_EQ(tree.depth(a), 3);
  EXPECT_EQ(tree.depth(b), 3);
  EXPECT_EQ(tree.n_entries(), 4);
  tree.check_invariants(std::vector<const PrefixTree::Node*>{a, b});
  tree.release(a);
  EXPECT_EQ(tree.n_evictable(0), 1);
  EXPECT_EQ(values(tree.evict(0, 4)), (Numbers{12}));
  tree.check_invariants(std::vector<const PrefixTree::Node*>{b});
  tree.release(b);
  EXPECT_EQ(tree.evict(0, 4).size(), 3u);
  EXPECT_EQ(tree.n_entries(), 0);
  tree.check_invariants({});
}

TEST(PrefixTree, evicts_the_oldest_leaf_first_and_from_its_end) {
  PrefixTree tree(kTreeBlockLen);
  tree.release(insert_all(tree, Prompt({1, 1, 2, 2}), 10));
  tree.release(insert_all(tree, Prompt({3, 3, 4, 4}), 20));
  tree.match(Prompt({1, 1, 2, 2}).key(), 0);
  EXPECT_EQ(values(tree.evict(0, 1)), (Numbers{21}));
  EXPECT_EQ(values(tree.evict(0, 2)), (Numbers{20, 11}));
  tree.check_invariants({});
}

TEST(PrefixTree, keeps_what_was_found_again_longer_than_what_was_computed_once_but_not_for_ever) {
  constexpr std::int32_t kCacheBlocks = 10;
  PrefixTree tree(kTreeBlockLen, {{.n_blocks = kCacheBlocks}}, 1.0);
  const Prompt reused({1, 1, 2, 2});
  tree.release(insert_all(tree, reused, 0));
  tree.count_reuse(tree.match(reused.key(), 0).node);
  const auto insert_once = [&](std::int32_t i) {
    tree.release(insert_all(tree, Prompt({100 + i, 100 + i, 200 + i, 200 + i}), 10 * (i + 1)));
  };
  insert_once(0);
  EXPECT_EQ(values(tree.evict(0, 2)), (Numbers{11, 10})) << "computed once goes first, though it was used later";
  for (std::int32_t i = 1; i < 8; ++i) insert_once(i);
  EXPECT_EQ(values(tree.evict(0, 2)), (Numbers{21, 20}));
  PrefixTree plain(kTreeBlockLen, {{.n_blocks = kCacheBlocks}}, 0.0);
  plain.release(insert_all(plain, reused, 0));
  plain.count_reuse(plain.match(reused.key(), 0).node);
  plain.release(insert_all(plain, Prompt({5, 5}), 10));
  EXPECT_EQ(values(plain.evict(0, 1)), (Numbers{1})) << "0 is least recently used";
  for (std::int32_t i = 8; i < 16; ++i) insert_once(i);
  bool is_gone = false;
  for (int i = 0; i < 8 && !is_gone; ++i) is_gone = tree.evict(0, 2)[1].block.value == 0;
  EXPECT_TRUE(is_gone) << "a prompt that is not asked for any more never leaves";
}

TEST(PrefixTree, counts_a_block_as_found_that_was_evicted_lately_and_is_computed_again) {
  for (const std::int32_t n_between : {1, 5}) {
    PrefixTree tree(kTreeBlockLen, {{.n_blocks = 4}}, 1.0);
    tree.release(insert_all(tree, Prompt({1, 1}), 0));
    EXPECT_EQ(values(tree.evict(0, 1)), (Numbers{0}));
    for (std::int32_t i = 0; i < n_between; ++i) {
      tree.release(insert_all(tree, Prompt({50 + i, 50 + i}), 10 + i));
      EXPECT_EQ(values(tree.evict(0, 1)), (Numbers{10 + i}));
    }
    tree.release(insert_all(tree, Prompt({1, 1}), 1));
    tree.release(insert_all(tree, Prompt({9, 9}), 2));
    EXPECT_EQ(values(tree.evict(0, 1)), n_between == 1 ? (Numbers{2}) : (Numbers{1})) << "four evictions are remembered";
    tree.check_invariants({});
  }
}

TEST(PrefixTree, evicts_all_that_is_unused_and_forgets_what_was_evicted) {
  PrefixTree tree(kTreeBlockLen, {{.n_blocks = 4}}, /*life_of_reuse=*/10);
  const Prompt held({1, 1, 2, 2}), once({3, 3}), other({4, 4});
  PrefixTree::Node* node = insert_all(tree, held, 10);
  tree.release(insert_all(tree, once, 0));
  tree.release(insert_all(tree, other, 1));
  Numbers evicted = values(tree.evict_all());
  std::ranges::sort(evicted);
  EXPECT_EQ(evicted, (Numbers{0, 1}));
  tree.check_invariants(std::vector<const PrefixTree::Node*>{node});
  // Were the eviction remembered, the block would count as found again and outlive a block that is computed later.
  tree.release(insert_all(tree, once, 2));
  tree.release(insert_all(tree, Prompt({5, 5}), 3));
  EXPECT_EQ(values(tree.evict(0, 1)), (Numbers{2}));
  tree.release(node);
  EXPECT_EQ(tree.evict_all().size(), 3u);
  EXPECT_EQ(tree.n_entries(), 0);
  tree.check_invariants({});
}

TEST(PrefixTree, evicts_neither_pinned_nor_referenced_blocks) {
  PrefixTree tree(kTreeBlockLen);
  const Prompt pinned({1, 1, 2, 2}), longer({1, 1, 2, 2, 3, 3});
  tree.release(insert_all(tree, pinned, 10));
  PrefixTree::Node* pin = tree.match(pinned.key(), 0).node;
  tree.pin(pin);
  PrefixTree::Node* held = insert_all(tree, longer, 10);
  EXPECT_TRUE(tree.evict(0, 9).empty());
  tree.release(held);
  EXPECT_EQ(values(tree.evict(0, 9)), (Numbers{12}));
  EXPECT_EQ(tree.n_pinned(0), 2);
  tree.unpin(pin);
  EXPECT_EQ(values(tree.evict(0, 9)), (Numbers{11, 10}));
  EXPECT_EQ(tree.n_pinned(0), 0);
  tree.check_invariants({});
}

TEST(PrefixTree, keeps_a_pin_whole_when_its_node_is_split) {
  PrefixTree tree(kTreeBlockLen);
  const Prompt pinned({1, 1, 2, 2, 3, 3});
  tree.release(insert_all(tree, pinned, 10));
  PrefixTree::Node* pin = tree.match(pinned.key(), 0).node;
  tree.pin(pin);
  tree.release(insert_all(tree, Prompt({1, 1, 9, 9}), 20));
  EXPECT_EQ(tree.n_pinned(0), 3);
  EXPECT_EQ(values(tree.evict(0, 9)), (Numbers{21}));
  tree.unpin(pin);
  EXPECT_EQ(tree.n_evictable(0), 3);
  tree.check_invariants({});
}

TEST(PrefixTree, shows_blocks_to_steps_after_the_one_that_fills_them) {
  PrefixTree tree(kTreeBlockLen);
  const Prompt prompt({1, 1, 2, 2, 3, 3});
  PrefixTree::Node* node = insert_all(tree, Prompt({1, 1}), 10, 4);
  for (std::int32_t i = 1; i < 3; ++i) node = tree.insert(node, prompt.key(), i, std::vector{BlockId{10 + i}}, 5);
  EXPECT_EQ(tree.find(prompt.key(), 3).n_ready, 0);
  EXPECT_EQ(tree.find(prompt.key(), 3).n_pending, 3);
  EXPECT_EQ(tree.find(prompt.key(), 4).n_ready, 1);
  EXPECT_EQ(tree.find(prompt.key(), 4).n_pending, 2);
  EXPECT_EQ(values(tree.match(prompt.key(), 4).blocks), (Numbers{10}));
  EXPECT_EQ(tree.find(prompt.key(), 5).n_ready, 3);
  tree.check_invariants(std::vector<const PrefixTree::Node*>{node});
}

TEST(PrefixTree, compares_tokens_where_hashes_agree) {
  PrefixTree tree(kTreeBlockLen);
  Prompt real({1, 2});
  tree.release(insert_all(tree, real, 10));
  Prompt forged({3, 4});
  forged.hashes = real.hashes;
  EXPECT_EQ(tree.find(forged.key(), 0).n_ready, 0);
}

TEST(PrefixTree, shares_what_lies_before_the_salt_and_nothing_after) {
  PrefixTree tree(kTreeBlockLen);
  const std::vector<TokenId> tokens{1, 2, 3, 4, 5, 6};
  const CacheScope a{.adapter = "", .salt = "a", .salt_from = 4}, b{.adapter = "", .salt = "b", .salt_from = 4};
  tree.release(insert_all(tree, Prompt(a, tokens), 10));
  EXPECT_EQ(tree.find(Prompt(b, tokens).key(), 0).n_ready, 2);
  EXPECT_EQ(tree.find(Prompt(tokens).key(), 0).n_ready, 2);
  EXPECT_EQ(tree.find(Prompt(a, tokens).key(), 0).n_ready, 3);
  EXPECT_EQ(tree.find(Prompt({.adapter = "x", .salt = "a", .salt_from = 4}, tokens).key(), 0).n_ready, 0);
}

TEST(PrefixTreeDeathTest, aborts_when_released_more_often_than_acquired) {
  PrefixTree tree(kTreeBlockLen);
  PrefixTree::Node* node = insert_all(tree, Prompt({1, 1}), 10);
  tree.release(node);
  EXPECT_DEATH(tree.release(node), "more often");
}

/// The tree as a flat list: a block is identified by all the text up to it and the scope there.
struct NaiveTree {
  struct Block {
    std::int32_t number = 0;
    std::int64_t usable_from = 0;
    std::uint64_t age = 0;
    std::uint32_t n_reuses = 0;
    std::multiset<int> holders;  ///< sequences (positive) and pins (negative)
  };
  std::map<std::string, Block> blocks;
  std::vector<std::pair<std::string, std::uint32_t>> evicted;  ///< latest, with reuse counts; empty: recalled
  std::uint64_t clock = 0;

  static std::vector<std::string> paths(const CacheScope& scope, const std::vector<TokenId>& tokens) {
    std::vector<std::string> out;
    std::string path = scope.adapter + "|";
    for (std::size_t i = 0; i + kTreeBlockLen <= tokens.size(); i += kTreeBlockLen) {
      const bool salted = !scope.salt.empty() && static_cast<std::int32_t>(i) + kTreeBlockLen > scope.salt_from;
      path += "/" + std::to_string(tokens[i]) + "," + std::to_string(tokens[i + 1]) + (salted ? scope.salt : "");
      out.push_back(path);
    }
    return out;
  }
  bool is_leaf(const std::string& path) const {
    const auto next = blocks.upper_bound(path + "/");
    return next == blocks.end() || next->first.compare(0, path.size() + 1, path + "/") != 0;
  }
  void touch(const std::vector<std::string>& path, std::size_t n) {
    ++clock;
    for (std::size_t i = 0; i < n; ++i) blocks.at(path[i]).age = clock;
  }
  std::int32_t n_evictable() const {
    return static_cast<std::int32_t>(std::ranges::count_if(blocks, [](const auto& b) { return b.second.holders.empty(); }));
  }
  /// Returns whether block `number` may be evicted next, and removes it if so.
  bool evict(std::int32_t number, double life_of_reuse, std::size_t n_remembered) {
    const auto claim = [&](const Block& block) {
      return block.age + static_cast<std::uint64_t>(life_of_reuse * std::log2(1.0 + block.n_reuses));
    };
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    auto at_fault = blocks.end();
    for (auto at = blocks.begin(); at != blocks.end(); ++at) {
      if (!at->second.holders.empty() || !is_leaf(at->first)) continue;
      least = std::min(least, claim(at->second));
      if (at->second.number == number) at_fault = at;
    }
    if (at_fault == blocks.end() || claim(at_fault->second) != least) return false;
    evicted.emplace_back(at_fault->first, at_fault->second.n_reuses);
    if (evicted.size() > n_remembered) evicted.erase(evicted.begin());
    blocks.erase(at_fault);
    return true;
  }
  /// The reuse count of a new block: one more than at its last eviction, if that was recent, but not more than its
  /// parent's.
  std::uint32_t recall(const std::string& path, const std::string* parent) {
    std::uint32_t n_reuses = 0;
    for (auto& [hash, n] : evicted) {
      if (hash != path) continue;
      n_reuses = n + 1;  // an earlier eviction of it is overridden
    }
    for (auto& [hash, n] : evicted)
      if (hash == path) hash.clear();
    return parent == nullptr ? n_reuses : std::min(n_reuses, blocks.at(*parent).n_reuses);
  }
};

struct RunningSequence {
  std::vector<std::string> paths;
  Prompt prompt;
  PrefixTree::Node* node = nullptr;
  std::size_t depth = 0;
  int id = 0;
};

/// One random run: sequences that match, insert and end, pins, evictions.
void run_random_operations(std::uint32_t seed, int n_rounds) {
  constexpr std::int32_t kCacheBlocks = 20;
  constexpr double kLife = 0.7;
  std::mt19937 rng(seed);
  PrefixTree tree(kTreeBlockLen, {{.n_blocks = kCacheBlocks}}, kLife);
  NaiveTree naive;
  std::vector<RunningSequence> running, pins;
  std::int32_t next_block = 0;
  int next_id = 1;
  const std::vector<CacheScope> scopes{{}, {"", "s", 0}, {"", "s", 5}, {"", "t", 5}, {"a", "", 0}};

  for (std::int64_t step = 0; step < n_rounds; ++step) {
    const CacheScope& scope = scopes[rng() % scopes.size()];
    std::vector<TokenId> tokens(rng() % 13);
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng() % 2);
    Prompt prompt(scope, tokens);
    const std::vector<std::string> paths = NaiveTree::paths(scope, tokens);
    switch (rng() % 6) {
      case 0:
      case 1: {  // a sequence begins with the cached blocks
        std::size_t n = 0, n_known = 0;
        while (n < paths.size() && naive.blocks.contains(paths[n]) && naive.blocks[paths[n]].usable_from <= step) ++n;
        while (n_known < paths.size() && naive.blocks.contains(paths[n_known])) ++n_known;
        const auto found = tree.find(prompt.key(), step);
        ASSERT_EQ(static_cast<std::size_t>(found.n_ready), n);
        ASSERT_EQ(static_cast<std::size_t>(found.n_ready + found.n_pending), n_known);
        std::int32_t n_unheld = 0;
        for (std::size_t i = 0; i < n; ++i) n_unheld += naive.blocks[paths[i]].holders.empty() ? 1 : 0;
        ASSERT_EQ(found.n_unheld[0], n_unheld);
        const auto match = tree.match(prompt.key(), step);
        ASSERT_EQ(static_cast<std::size_t>(match.n_blocks), n);
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(match.blocks[i].value, naive.blocks[paths[i]].number);
        naive.touch(paths, n);
        if (running.size() > 4) break;
        tree.count_reuse(match.node);
        tree.acquire(match.node);
        for (std::size_t i = 0; i < n; ++i) {
          naive.blocks[paths[i]].holders.insert(next_id);
          ++naive.blocks[paths[i]].n_reuses;
        }
        running.push_back({paths, prompt, match.node, n, next_id++});
        break;
      }
      case 2: {  // a running sequence fills its next block
        if (running.empty()) break;
        RunningSequence& sequence = running[rng() % running.size()];
        if (sequence.depth == sequence.paths.size()) break;
        const std::string& path = sequence.paths[sequence.depth];
        const std::int64_t usable_from = step + static_cast<std::int64_t>(rng() % 3);
        PrefixTree::Node* node = tree.insert(sequence.node, sequence.prompt.key(), static_cast<std::int32_t>(sequence.depth),
                                             std::vector{BlockId{next_block}}, usable_from);
        ASSERT_EQ(node == nullptr, naive.blocks.contains(path));
        if (node == nullptr) break;
        const std::string* parent = sequence.depth == 0 ? nullptr : &sequence.paths[sequence.depth - 1];
        naive.blocks[path] = {next_block++, usable_from, 0, naive.recall(path, parent), {sequence.id}};
        sequence.node = node;
        naive.touch(sequence.paths, ++sequence.depth);
        break;
      }
      case 3: {  // a sequence ends
        if (running.empty()) break;
        const std::size_t which = rng() % running.size();
        const RunningSequence& sequence = running[which];
        tree.release(sequence.node);
        naive.touch(sequence.paths, sequence.depth);
        for (std::size_t i = 0; i < sequence.depth; ++i) naive.blocks.at(sequence.paths[i]).holders.erase(sequence.id);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
        break;
      }
      case 4: {  // a pin is added or removed
        if (pins.size() < 2) {
          const auto match = tree.match(prompt.key(), PrefixTree::kAnyStep);
          naive.touch(paths, static_cast<std::size_t>(match.n_blocks));
          tree.pin(match.node);
          for (std::size_t i = 0; i < static_cast<std::size_t>(match.n_blocks); ++i)
            naive.blocks.at(paths[i]).holders.insert(-next_id);
          pins.push_back({paths, prompt, match.node, static_cast<std::size_t>(match.n_blocks), -next_id++});
        } else {
          tree.unpin(pins[0].node);
          for (std::size_t i = 0; i < pins[0].depth; ++i) naive.blocks.at(pins[0].paths[i]).holders.erase(pins[0].id);
          pins.erase(pins.begin());
        }
        break;
      }
      default: {
        const auto n = static_cast<std::int32_t>(rng() % 4);
        const std::vector<GroupBlock> evicted = tree.evict(0, n);
        ASSERT_EQ(static_cast<std::int32_t>(evicted.size()), std::min(n, naive.n_evictable()));
        for (const GroupBlock& of : evicted) ASSERT_TRUE(naive.evict(of.block.value, kLife * kCacheBlocks, kCacheBlocks));
        break;
      }
    }
    ASSERT_EQ(static_cast<std::size_t>(tree.n_entries()), naive.blocks.size());
    ASSERT_EQ(tree.n_evictable(0), naive.n_evictable());
    std::vector<const PrefixTree::Node*> references;
    for (const RunningSequence& sequence : running) {
      ASSERT_EQ(static_cast<std::size_t>(tree.depth(sequence.node)), sequence.depth);
      references.push_back(sequence.node);
    }
    tree.check_invariants(references);
  }
}

TEST(PrefixTree, agrees_with_a_naive_model_over_random_operations) {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u}) run_random_operations(seed, 4000);
}

TEST(PrefixTree, of_a_very_long_chain_is_freed_without_deep_recursion) {
  PrefixTree tree(kTreeBlockLen);
  std::vector<TokenId> tokens(200000, 1);
  const Prompt prompt(tokens);
  PrefixTree::Node* node = tree.root();
  PrefixTree::Node* pinned = nullptr;
  for (std::size_t i = 0; i < 2000; ++i) {
    node = tree.insert(node, prompt.key(), static_cast<std::int32_t>(i), std::vector{BlockId{static_cast<std::int32_t>(i)}}, 0);
    tree.pin(node);  // so that each block gets its own node
    pinned = node;
  }
  EXPECT_EQ(tree.depth(pinned), 2000);
}

}  // namespace
}  // namespace baton
