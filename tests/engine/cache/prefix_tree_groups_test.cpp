/// PrefixTree with several layer groups: by example, and compared with a naive model of single entries over random
/// operations.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "engine/cache/prefix_tree.h"

namespace baton {
namespace {

constexpr std::int32_t kPairLen = 2;

struct GroupPrompt {
  std::vector<TokenId> tokens;
  std::vector<BlockHash> hashes;

  explicit GroupPrompt(std::vector<TokenId> of) : tokens(std::move(of)) { extend_hashes({}, tokens, kPairLen, hashes); }
  PrefixKey key() const { return {tokens, hashes}; }
};

GroupPrompt grouped_count_up(TokenId first, std::size_t n_blocks) {
  std::vector<TokenId> tokens(n_blocks * kPairLen);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<TokenId>(i);
  return GroupPrompt(tokens);
}

/// Inserts all missing entries of a prompt; an entry has block number index + first_block in each group.
PrefixTree::Node* insert_in_groups(PrefixTree& tree, const GroupPrompt& prompt, int n_groups, std::int32_t first_block = 0) {
  PrefixTree::Node* node = tree.root();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(prompt.hashes.size()); ++i)
    node = tree.insert(node, prompt.key(), i, std::vector(static_cast<std::size_t>(n_groups), BlockId{first_block + i}), 0);
  return node;
}

void unhold_all(PrefixTree& tree, int group, std::int32_t first, std::int32_t end, bool is_behind_window) {
  for (std::int32_t i = first; i < end; ++i) tree.unhold(group, BlockId{i}, is_behind_window, tree.new_end(0));
}

TEST(PrefixTreeGroups, a_match_ends_where_every_group_holds_what_the_next_row_sees) {
  PrefixTree tree(kPairLen, {{.n_blocks = 20}, {.n_blocks = 20, .window = 5}});
  const GroupPrompt prompt = grouped_count_up(0, 8);
  PrefixTree::Node* node = insert_in_groups(tree, prompt, 2);
  unhold_all(tree, 1, 0, 3, true);
  EXPECT_EQ(tree.n_evictable(1), 3);
  EXPECT_EQ(tree.find(prompt.key(), 0).n_ready, 8);
  for (std::int32_t i = 0; i < 3; ++i) {
    const auto dropped = tree.evict(1, 1);
    ASSERT_EQ(dropped.size(), 1u);
    EXPECT_EQ(dropped[0].group, 1);
    EXPECT_EQ(dropped[0].block, BlockId{i}) << "the one that was left first";
  }
  EXPECT_TRUE(tree.evict(1, 1).empty());
  // A row at position 10 sees the four keys before it, in entries 3 and 4; one at position 8 those in entries 2 and 3.
  EXPECT_EQ(tree.find(grouped_count_up(0, 5).key(), 0).n_ready, 5);
  EXPECT_EQ(tree.find(grouped_count_up(0, 4).key(), 0).n_ready, 0) << "entries 0 to 2 lack their blocks";
  EXPECT_EQ(tree.n_blocks(0), 8);
  EXPECT_EQ(tree.n_blocks(1), 5);
  const auto match = tree.match(grouped_count_up(0, 6).key(), 0);
  EXPECT_EQ(match.n_blocks, 6);
  EXPECT_EQ(match.blocks[2 * 5 + 1], BlockId{5});
  EXPECT_FALSE(match.blocks[2 * 2 + 1].is_valid());
  EXPECT_EQ(match.blocks[2 * 2], BlockId{2}) << "the group without a window has all its blocks";
  EXPECT_EQ(tree.trace(grouped_count_up(0, 4).key()).n_blocks, 4);
  tree.check_invariants(std::vector<const PrefixTree::Node*>{node});
}

TEST(PrefixTreeGroups, a_dropped_block_comes_back_when_it_was_computed_again) {
  PrefixTree tree(kPairLen, {{.n_blocks = 20}, {.n_blocks = 20, .window = 3}});
  const GroupPrompt prompt = grouped_count_up(0, 4);
  PrefixTree::Node* node = insert_in_groups(tree, prompt, 2);
  unhold_all(tree, 1, 0, 4, true);
  EXPECT_EQ(tree.evict(1, 9).size(), 4u);
  EXPECT_EQ(tree.find(prompt.key(), 0).n_ready, 0);
  std::vector<BlockId> blocks(2 * 4);
  for (std::int32_t i = 1; i < 4; ++i) blocks[static_cast<std::size_t>(2 * i + 1)] = BlockId{10 + i};
  const auto taken = tree.fill_dropped(prompt.key(), 0, blocks, 7);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_TRUE(std::ranges::all_of(taken, [](const GroupBlock& of) { return of.group == 1 && of.block.value > 10; }));
  EXPECT_TRUE(tree.fill_dropped(prompt.key(), 2, std::vector<BlockId>(4, BlockId{15}), 7).empty())
      << "nothing is dropped there";
  EXPECT_EQ(tree.find(prompt.key(), 6).n_ready, 0);
  EXPECT_EQ(tree.find(prompt.key(), 6).n_pending, 4);
  EXPECT_EQ(tree.find(prompt.key(), 7).n_ready, 4);
  EXPECT_EQ(tree.n_evictable(1), 0) << "the giver of the blocks uses them";
  tree.check_invariants(std::vector<const PrefixTree::Node*>{node});
}

TEST(PrefixTreeGroups, a_pin_keeps_what_the_row_after_it_sees_in_every_group) {
  PrefixTree tree(kPairLen, {{.n_blocks = 20}, {.n_blocks = 20, .window = 4}});
  const GroupPrompt prompt = grouped_count_up(0, 8);
  PrefixTree::Node* node = insert_in_groups(tree, prompt, 2);
  tree.release(node);
  unhold_all(tree, 1, 0, 8, false);
  PrefixTree::Node* pin = tree.match(grouped_count_up(0, 6).key(), 0).node;
  tree.pin(pin);
  EXPECT_EQ(tree.n_pinned(0), 6);
  EXPECT_EQ(tree.n_pinned(1), 2) << "positions 9 to 11";
  EXPECT_EQ(tree.evict(1, 9).size(), 6u);
  EXPECT_EQ(tree.evict(0, 9).size(), 2u);
  EXPECT_EQ(tree.find(prompt.key(), 0).n_ready, 6);
  tree.unpin(pin);
  EXPECT_EQ(tree.evict(0, 9).size(), 8u) << "six entries, two of which still have a block of the other group";
  EXPECT_EQ(tree.n_blocks(1), 0);
  tree.check_invariants({});
}

TEST(PrefixTreeGroups, forgets_entries_without_blocks_if_every_group_has_a_window) {
  PrefixTree tree(kPairLen, {{.n_blocks = 20, .window = 3}, {.n_blocks = 20, .window = 5}});
  const GroupPrompt prompt = grouped_count_up(0, 6);
  PrefixTree::Node* node = insert_in_groups(tree, prompt, 2);
  unhold_all(tree, 0, 0, 6, true);
  unhold_all(tree, 1, 0, 5, true);
  EXPECT_EQ(tree.evict(0, 9).size(), 6u);
  EXPECT_EQ(tree.n_entries(), 6) << "a sequence holds them";
  tree.release(node);
  EXPECT_EQ(tree.n_entries(), 6) << "the last one has a block";
  EXPECT_EQ(tree.evict(1, 5).size(), 5u);
  EXPECT_EQ(tree.n_entries(), 6);
  tree.unhold(1, BlockId{5}, false, tree.new_end(0));
  EXPECT_EQ(tree.evict(1, 5).size(), 1u);
  EXPECT_EQ(tree.n_entries(), 0);
  tree.check_invariants({});
}

/// The tree as a flat list: an entry is identified by all the text up to it.
struct NaiveGroupTree {
  struct Block {
    std::int32_t number = -1;  ///< -1: dropped
    std::multiset<int> users;  ///< sequences
    std::multiset<int> pins;
    std::tuple<bool, std::uint64_t, std::uint64_t> order;  ///< for dropping, while it is unused
  };
  struct Entry {
    std::vector<Block> blocks;
    std::int64_t usable_from = 0;
    std::uint64_t age = 0;
    std::uint32_t n_reuses = 0;
    std::multiset<int> holders;  ///< sequences (positive) and pins (negative)
  };
  using Path = std::vector<std::string>;

  std::vector<CacheGroup> groups;
  double life_of_reuse = 0;
  std::size_t n_remembered = 0;
  std::map<std::string, Entry> entries;
  std::vector<std::pair<std::string, std::uint32_t>> evicted;  ///< latest, with reuse counts; empty: recalled
  std::uint64_t clock = 0;

  bool has_full_group() const { return !std::ranges::all_of(groups, &CacheGroup::has_window); }
  static Path path_of(const std::vector<TokenId>& tokens) {
    Path out;
    std::string path = "|";
    for (std::size_t i = 0; i + kPairLen <= tokens.size(); i += kPairLen) {
      path += "/" + std::to_string(tokens[i]) + "," + std::to_string(tokens[i + 1]);
      out.push_back(path);
    }
    return out;
  }
  bool is_leaf(const std::string& path) const {
    const auto next = entries.upper_bound(path + "/");
    return next == entries.end() || next->first.compare(0, path.size() + 1, path + "/") != 0;
  }
  /// The first entry that a row after n entries needs.
  std::size_t first_needed(std::size_t g, std::size_t n) const {
    std::size_t first = n;
    const auto row = static_cast<std::int32_t>(n) * kPairLen;
    for (std::int32_t position = 0; position < row; ++position) {
      const bool sees = groups[g].window == 0 || position > row - groups[g].window;
      if (sees) first = std::min(first, static_cast<std::size_t>(position / kPairLen));
    }
    return first;
  }
  /// The longest prefix whose entries exist and in which every group has the blocks that the next row sees.
  std::size_t longest(const Path& path, std::int64_t step) const {
    std::size_t n_there = 0;
    while (n_there < path.size() && entries.contains(path[n_there]) && entries.at(path[n_there]).usable_from <= step) ++n_there;
    for (std::size_t n = n_there; n > 0; --n) {
      bool has_all = true;
      for (std::size_t g = 0; g < groups.size(); ++g)
        for (std::size_t i = first_needed(g, n); i < n; ++i) has_all = has_all && entries.at(path[i]).blocks[g].number >= 0;
      if (has_all) return n;
    }
    return 0;
  }
  void touch(const Path& path, std::size_t n) {
    ++clock;
    for (std::size_t i = 0; i < n; ++i) entries.at(path[i]).age = clock;
  }
  std::uint64_t claim(const Entry& entry) const { return claim_after(entry.age, entry.n_reuses); }
  std::uint64_t claim_after(std::uint64_t age, std::uint32_t n_reuses) const {
    return age + static_cast<std::uint64_t>(life_of_reuse * std::log2(1.0 + n_reuses));
  }
  /// Of a block that is left at an end.
  std::uint64_t claim_at(const PrefixTree::End& end, std::uint32_t n_reuses) const {
    if (!end.is_shared) n_reuses = std::max(std::max(n_reuses, 1U) - 1, end.n_reuses);
    return claim_after(end.time, n_reuses);
  }
  std::size_t n_known(const Path& path) const {
    std::size_t n = 0;
    while (n < path.size() && entries.contains(path[n])) ++n;
    return n;
  }
  /// In how many ways text continues after n entries of a path.
  std::ptrdiff_t n_continuations(const Path& path, std::size_t n) const {
    const std::string begin = (n > 0 ? path[n - 1] : "|") + "/";
    return std::ranges::count_if(entries, [&](const auto& entry) {
      return entry.first.starts_with(begin) && entry.first.find('/', begin.size()) == std::string::npos;
    });
  }
  bool is_evictable(const Entry& entry, std::size_t g) const {
    const Block& block = entry.blocks[g];
    if (!groups[g].has_window()) return entry.holders.empty();
    return block.number >= 0 && block.users.empty() && block.pins.empty();
  }
  std::int32_t n_evictable(std::size_t g) const {
    return static_cast<std::int32_t>(
        std::ranges::count_if(entries, [&](const auto& entry) { return is_evictable(entry.second, g); }));
  }
  void forget(const std::string& path) {
    evicted.emplace_back(path, entries.at(path).n_reuses);
    if (evicted.size() > n_remembered) evicted.erase(evicted.begin());
    entries.erase(path);
  }
  /// If every group has a window: from this entry upwards, removes entries at an end that have no block and that
  /// no sequence holds.
  void forget_empty(std::string path) {
    while (!has_full_group() && entries.contains(path) && is_leaf(path) && entries.at(path).holders.empty() &&
           std::ranges::all_of(entries.at(path).blocks, [](const Block& block) { return block.number < 0; })) {
      forget(path);
      path = path.substr(0, path.rfind('/'));
    }
  }
  /// Drops block `number` of a group, which must be one that may go next. Without a window the whole entry goes.
  /// Returns its blocks.
  std::optional<std::set<std::pair<int, std::int32_t>>> evict(std::size_t g, std::int32_t number) {
    auto found = entries.end();
    for (auto at = entries.begin(); at != entries.end(); ++at)
      if (at->second.blocks[g].number == number) found = at;
    if (found == entries.end() || !is_evictable(found->second, g)) return std::nullopt;
    const std::string path = found->first;
    if (groups[g].has_window()) {
      for (const auto& [other, entry] : entries)
        if (is_evictable(entry, g) && entry.blocks[g].order < found->second.blocks[g].order) return std::nullopt;
      found->second.blocks[g] = {};
      forget_empty(path);
      return std::set<std::pair<int, std::int32_t>>{{static_cast<int>(g), number}};
    }
    if (!is_leaf(path)) return std::nullopt;
    for (const auto& [other, entry] : entries)
      if (entry.holders.empty() && is_leaf(other) && claim(entry) < claim(found->second)) return std::nullopt;
    std::set<std::pair<int, std::int32_t>> blocks;
    for (std::size_t of = 0; of < groups.size(); ++of)
      if (found->second.blocks[of].number >= 0) blocks.emplace(static_cast<int>(of), found->second.blocks[of].number);
    forget(path);
    return blocks;
  }
  std::uint32_t recall(const std::string& path, const std::string* parent) {
    std::uint32_t n_reuses = 0;
    for (const auto& [hash, n] : evicted)
      if (hash == path) n_reuses = n + 1;
    for (auto& [hash, n] : evicted)
      if (hash == path) hash.clear();
    return parent == nullptr ? n_reuses : std::min(n_reuses, entries.at(*parent).n_reuses);
  }
};

struct Running {
  NaiveGroupTree::Path path;
  GroupPrompt prompt;
  PrefixTree::Node* node = nullptr;
  std::size_t depth = 0;
  int id = 0;
  std::vector<std::size_t> first;  ///< of each group: the first entry whose block it uses
};

struct RandomOperations {
  RandomOperations(std::uint32_t seed, const std::vector<CacheGroup>& groups)
      : rng(seed), tree(kPairLen, groups, 0.7), running(), next_block(groups.size(), 0) {
    naive.groups = groups;
    const auto full = std::ranges::find_if_not(groups, &CacheGroup::has_window);
    naive.n_remembered = static_cast<std::size_t>(full == groups.end() ? groups[0].n_blocks : full->n_blocks);
    naive.life_of_reuse = 0.7 * static_cast<double>(naive.n_remembered);
  }

  /// An unused block number; numbers are reused, as in a pool.
  std::optional<BlockId> free_block(std::size_t g) {
    for (std::int32_t i = 0; i < naive.groups[g].n_blocks; ++i) {
      const BlockId block{next_block[g]};
      next_block[g] = (next_block[g] + 1) % naive.groups[g].n_blocks;
      const bool is_used =
          std::ranges::any_of(naive.entries, [&](const auto& entry) { return entry.second.blocks[g].number == block.value; });
      if (!is_used) return block;
    }
    return std::nullopt;
  }
  void leave(const std::string& path, std::size_t g, int id, bool is_behind_window) {
    const auto at = naive.entries.find(path);
    if (at == naive.entries.end()) return;
    NaiveGroupTree::Block& block = at->second.blocks[g];
    if (block.number < 0 || block.users.erase(id) == 0 || !block.users.empty()) return;
    if (rng() % 3 > 0) left = tree.new_end(rng() % 3);  // else an end has several blocks
    left.is_shared = rng() % 2 == 0;
    ASSERT_LE(left.time, naive.clock);
    block.order = {!is_behind_window, naive.claim_at(left, at->second.n_reuses), left.serial};
    tree.unhold(static_cast<int>(g), BlockId{block.number}, is_behind_window, left);
  }

  void begin(const GroupPrompt& prompt, const NaiveGroupTree::Path& path, std::int64_t step) {
    const std::size_t n = naive.longest(path, step);
    const auto found = tree.find(prompt.key(), step);
    ASSERT_EQ(static_cast<std::size_t>(found.n_ready), n);
    ASSERT_EQ(static_cast<std::size_t>(found.n_ready + found.n_pending), naive.longest(path, PrefixTree::kAnyStep));
    for (std::size_t g = 0; g < naive.groups.size(); ++g) {
      std::int32_t n_unheld = 0;
      for (std::size_t i = naive.first_needed(g, n); i < n; ++i) n_unheld += naive.is_evictable(naive.entries[path[i]], g);
      ASSERT_EQ(found.n_unheld[g], n_unheld);
    }
    const std::size_t n_known = naive.n_known(path);
    const auto match = tree.match(prompt.key(), step);
    ASSERT_EQ(static_cast<std::size_t>(match.n_blocks), n);
    ASSERT_EQ(static_cast<std::size_t>(match.n_to_fork), naive.n_continuations(path, n_known) > 0 ? n_known : 0);
    ASSERT_EQ(match.ends_at_fork, naive.n_continuations(path, n) > (n < n_known ? 1 : 0));
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t g = 0; g < naive.groups.size(); ++g)
        ASSERT_EQ(match.blocks[i * naive.groups.size() + g].value, naive.entries[path[i]].blocks[g].number);
    naive.touch(path, n);
    if (running.size() > 4) return;
    tree.count_reuse(match.node);
    tree.acquire(match.node);
    Running sequence{path, prompt, match.node, n, next_id++, {}};
    for (std::size_t i = 0; i < n; ++i) {
      naive.entries[path[i]].holders.insert(sequence.id);
      ++naive.entries[path[i]].n_reuses;
    }
    for (std::size_t g = 0; g < naive.groups.size(); ++g) {
      sequence.first.push_back(naive.first_needed(g, n));
      if (!naive.groups[g].has_window()) continue;
      for (std::size_t i = sequence.first[g]; i < n; ++i) {
        naive.entries[path[i]].blocks[g].users.insert(sequence.id);
        tree.hold(static_cast<int>(g), match.blocks[i * naive.groups.size() + g]);
      }
    }
    running.push_back(sequence);
  }
  void insert(Running& sequence, std::int64_t step) {
    if (sequence.depth == sequence.path.size()) return;
    const std::string& path = sequence.path[sequence.depth];
    std::vector<BlockId> blocks;
    NaiveGroupTree::Entry entry;
    for (std::size_t g = 0; g < naive.groups.size(); ++g) {
      const std::optional<BlockId> block = free_block(g);
      if (!block) return;
      const bool lacks = naive.groups[g].has_window() && rng() % 8 == 0;
      blocks.push_back(lacks ? BlockId{} : *block);
      entry.blocks.push_back({blocks.back().value, {}, {}, {}});
      if (!lacks) entry.blocks.back().users.insert(sequence.id);
    }
    const std::int64_t usable_from = step + static_cast<std::int64_t>(rng() % 3);
    PrefixTree::Node* node =
        tree.insert(sequence.node, sequence.prompt.key(), static_cast<std::int32_t>(sequence.depth), blocks, usable_from);
    ASSERT_EQ(node == nullptr, naive.entries.contains(path));
    if (node == nullptr) return;
    entry.usable_from = usable_from;
    entry.n_reuses = naive.recall(path, sequence.depth == 0 ? nullptr : &sequence.path[sequence.depth - 1]);
    entry.holders.insert(sequence.id);
    naive.entries[path] = entry;
    sequence.node = node;
    naive.touch(sequence.path, ++sequence.depth);
  }
  /// A sequence leaves blocks behind its window.
  void advance(Running& sequence) {
    for (std::size_t g = 0; g < naive.groups.size(); ++g) {
      if (!naive.groups[g].has_window()) continue;
      for (; sequence.first[g] < naive.first_needed(g, sequence.depth); ++sequence.first[g])
        leave(sequence.path[sequence.first[g]], g, sequence.id, true);
    }
  }
  void end(std::size_t which) {
    const Running sequence = running[which];
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
    naive.touch(sequence.path, sequence.depth);
    for (std::size_t i = 0; i < sequence.depth; ++i) naive.entries.at(sequence.path[i]).holders.erase(sequence.id);
    tree.release(sequence.node);
    if (sequence.depth > 0) naive.forget_empty(sequence.path[sequence.depth - 1]);
    for (std::size_t g = 0; g < naive.groups.size(); ++g)
      for (std::size_t i = sequence.depth; naive.groups[g].has_window() && i-- > sequence.first[g];)
        leave(sequence.path[i], g, sequence.id, false);
  }
  void pin_or_unpin(const GroupPrompt& prompt, const NaiveGroupTree::Path& path) {
    if (pins.size() < 2) {
      const auto match = tree.match(prompt.key(), PrefixTree::kAnyStep);
      const auto n = static_cast<std::size_t>(match.n_blocks);
      naive.touch(path, n);
      tree.pin(match.node);
      Running pin{path, prompt, match.node, n, -next_id++, {}};
      for (std::size_t i = 0; i < n; ++i) naive.entries.at(path[i]).holders.insert(pin.id);
      for (std::size_t g = 0; g < naive.groups.size(); ++g)
        for (std::size_t i = naive.first_needed(g, n); i < n; ++i) naive.entries.at(path[i]).blocks[g].pins.insert(pin.id);
      pins.push_back(pin);
      return;
    }
    const Running pin = pins[0];
    pins.erase(pins.begin());
    for (std::size_t g = 0; g < naive.groups.size(); ++g)
      for (std::size_t i = naive.first_needed(g, pin.depth); i < pin.depth; ++i)
        naive.entries.at(pin.path[i]).blocks[g].pins.erase(pin.id);
    for (std::size_t i = 0; i < pin.depth; ++i) naive.entries.at(pin.path[i]).holders.erase(pin.id);
    tree.unpin(pin.node);
    if (pin.depth > 0) naive.forget_empty(pin.path[pin.depth - 1]);
  }
  /// A sequence computed a prompt's blocks again and offers them in place of dropped ones.
  void fill_dropped(const GroupPrompt& prompt, const NaiveGroupTree::Path& path, std::int64_t step) {
    const std::size_t n_groups = naive.groups.size();
    const std::size_t first = path.empty() ? 0 : rng() % path.size();
    std::vector<BlockId> blocks((path.size() - first) * n_groups);
    std::set<std::pair<int, std::int32_t>> expected;
    std::size_t n_there = 0;
    while (n_there < path.size() && naive.entries.contains(path[n_there])) ++n_there;
    const int donor = next_id++;
    for (std::size_t g = 0; g < n_groups; ++g) {
      if (!naive.groups[g].has_window()) continue;
      for (std::size_t i = first; i < path.size(); ++i) {
        const std::optional<BlockId> block = free_block(g);
        if (!block || std::ranges::count(blocks, *block) > 0) continue;  // numbers of different groups may be equal
        blocks[(i - first) * n_groups + g] = *block;
        if (i >= n_there || naive.entries[path[i]].blocks[g].number >= 0) continue;
        naive.entries[path[i]].blocks[g] = {block->value, {donor}, {}, {}};
        naive.entries[path[i]].usable_from = std::max(naive.entries[path[i]].usable_from, step + 1);
        expected.emplace(static_cast<int>(g), block->value);
      }
    }
    std::set<std::pair<int, std::int32_t>> taken;
    for (const GroupBlock& of : tree.fill_dropped(prompt.key(), static_cast<std::int32_t>(first), blocks, step + 1))
      taken.emplace(of.group, of.block.value);
    ASSERT_EQ(taken, expected);
    n_filled += static_cast<int>(taken.size());
    for (std::size_t g = 0; g < n_groups; ++g)
      for (std::size_t i = first; i < n_there; ++i) leave(path[i], g, donor, rng() % 2 == 0);
  }
  void evict() {
    const auto g = static_cast<std::size_t>(rng() % naive.groups.size());
    const auto n = static_cast<std::int32_t>(rng() % 4);
    const std::int32_t n_expected = std::min(n, naive.n_evictable(g));
    std::set<std::pair<int, std::int32_t>> expected, evicted;
    std::int32_t n_evicted = 0;
    for (const GroupBlock& of : tree.evict(static_cast<int>(g), n)) {
      evicted.emplace(of.group, of.block.value);
      if (of.group != static_cast<int>(g)) continue;
      ++n_evicted;
      const auto blocks = naive.evict(g, of.block.value);
      ASSERT_TRUE(blocks) << "another block should have gone first";
      expected.insert(blocks->begin(), blocks->end());
    }
    ASSERT_EQ(n_evicted, n_expected);
    ASSERT_EQ(evicted, expected);
    n_dropped += naive.groups[g].has_window() ? n_evicted : 0;
  }

  void run(int n_rounds) {
    for (std::int64_t step = 0; step < n_rounds; ++step) {
      std::vector<TokenId> tokens(rng() % 17);
      for (TokenId& token : tokens) token = static_cast<TokenId>(rng() % 8 == 0);
      const GroupPrompt prompt(tokens);
      const NaiveGroupTree::Path path = NaiveGroupTree::path_of(tokens);
      const auto choice = rng() % 10;
      if (choice < 2) {
        ASSERT_NO_FATAL_FAILURE(begin(prompt, path, step));
      } else if (choice < 5 && !running.empty()) {
        ASSERT_NO_FATAL_FAILURE(insert(running[rng() % running.size()], step));
      } else if (choice == 5 && !running.empty()) {
        advance(running[rng() % running.size()]);
      } else if (choice == 6 && !running.empty()) {
        end(rng() % running.size());
      } else if (choice == 7) {
        pin_or_unpin(prompt, path);
      } else if (choice == 8) {
        ASSERT_NO_FATAL_FAILURE(fill_dropped(prompt, path, step));
      } else if (choice == 9) {
        ASSERT_NO_FATAL_FAILURE(evict());
      }
      ASSERT_EQ(static_cast<std::size_t>(tree.n_entries()), naive.entries.size());
      for (std::size_t g = 0; g < naive.groups.size(); ++g)
        ASSERT_EQ(tree.n_evictable(static_cast<int>(g)), naive.n_evictable(g));
      std::vector<const PrefixTree::Node*> references;
      for (const Running& sequence : running) {
        ASSERT_EQ(static_cast<std::size_t>(tree.depth(sequence.node)), sequence.depth);
        references.push_back(sequence.node);
      }
      tree.check_invariants(references);
    }
  }

  std::mt19937 rng;
  PrefixTree tree;
  NaiveGroupTree naive;
  PrefixTree::End left;  ///< the last end
  std::vector<Running> running, pins;
  std::vector<std::int32_t> next_block;
  int next_id = 1;
  int n_filled = 0;
  int n_dropped = 0;
};

TEST(PrefixTreeGroups, agree_with_a_naive_model_over_random_operations) {
  const std::vector<std::vector<CacheGroup>> cases{
      {{.n_blocks = 40}, {.n_blocks = 30, .window = 3}},
      {{.n_blocks = 30, .window = 5}, {.n_blocks = 40}, {.n_blocks = 20, .window = 1}},
      {{.n_blocks = 24, .window = 4}},
      {{.n_blocks = 24, .window = 2}, {.n_blocks = 30, .window = 7}},
      {{.n_blocks = 30}, {.n_blocks = 50}},
  };
  for (const std::vector<CacheGroup>& groups : cases) {
    int n_filled = 0, n_dropped = 0;
    for (const std::uint32_t seed : {1u, 2u, 3u}) {
      SCOPED_TRACE(::testing::Message() << groups.size() << " groups, window " << groups[0].window << ", seed " << seed);
      RandomOperations random(seed, groups);
      random.run(4000);
      if (HasFailure()) return;
      n_filled += random.n_filled;
      n_dropped += random.n_dropped;
    }
    if (std::ranges::none_of(groups, &CacheGroup::has_window)) continue;
    EXPECT_GT(n_dropped, 100) << "too little was dropped to show anything";
    EXPECT_GT(n_filled, 20);
  }
}

}  // namespace
}  // namespace baton
