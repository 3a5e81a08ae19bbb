/// gather_sharers: sequences with common beginnings stand together, and nothing else changes places.
#include "engine/schedule/admission_policy.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace baton {
namespace {

/// Sequences whose tables have hashes of given "blocks"; equal beginnings have equal hashes.
class Waiting {
 public:
  void add(const std::vector<int>& blocks) {
    auto sequence = testing::make_sequence(static_cast<std::int64_t>(sequences_.size()), {1}, 1);
    SequenceEditor::schedule(*sequence).table.hashes = hashes_of(blocks);
    sequences_.push_back(std::move(sequence));
  }
  std::vector<std::int64_t> gathered(const RunningBlocks& running = RunningBlocks(1)) const {
    std::vector<Sequence*> order;
    for (const auto& sequence : sequences_) order.push_back(sequence.get());
    gather_sharers(order, running);
    std::vector<std::int64_t> ids;
    for (const Sequence* sequence : order) ids.push_back(sequence->task->id.value);
    return ids;
  }
  const std::vector<BlockHash>& hashes(std::int64_t id) const {
    return sequences_[static_cast<std::size_t>(id)]->schedule->table.hashes;
  }
  static std::vector<BlockHash> hashes_of(const std::vector<int>& blocks) {
    std::vector<BlockHash> hashes;
    std::vector<TokenId> tokens;
    for (const int block : blocks) tokens.push_back(static_cast<TokenId>(block));
    extend_hashes({}, tokens, 1, hashes);
    return hashes;
  }

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

using Ids = std::vector<std::int64_t>;

TEST(SharingOrder, puts_those_with_a_common_beginning_after_its_first_arrival) {
  Waiting waiting;
  for (const int first : {1, 2, 1, 3, 2, 1}) waiting.add({first, 100 + first});
  EXPECT_EQ(waiting.gathered(), (Ids{0, 2, 5, 1, 4, 3}));
}

TEST(SharingOrder, groups_within_groups) {
  Waiting waiting;
  for (const int second : {5, 6, 5, 6, 5}) waiting.add({1, second, 0});
  waiting.add({2, 5, 0});
  waiting.add({1, 6, 0});
  EXPECT_EQ(waiting.gathered(), (Ids{0, 2, 4, 1, 3, 6, 5}));
}

TEST(SharingOrder, keeps_the_order_of_sequences_that_share_nothing_or_have_no_full_block) {
  Waiting waiting;
  for (int i = 0; i < 5; ++i) waiting.add({10 + i, 1, 2});
  waiting.add({});
  waiting.add({});
  EXPECT_EQ(waiting.gathered(), (Ids{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Waiting().gathered(), Ids{});
}

TEST(SharingOrder, begins_with_sequences_that_share_with_running_sequences) {
  Waiting waiting;
  for (const int first : {1, 2, 3, 2, 3}) waiting.add({first, 7});
  RunningBlocks running(1);
  running.update(SlotId{0}, Waiting::hashes_of({3}));
  EXPECT_EQ(waiting.gathered(running), (Ids{2, 4, 0, 1, 3}));
}

/// At each length that is compared, sequences with that beginning are contiguous.
TEST(SharingOrder, keeps_every_group_of_random_sequences_together) {
  std::mt19937 rng(1);
  for (int round = 0; round < 50; ++round) {
    Waiting waiting;
    const int n = static_cast<int>(rng() % 60);
    for (int i = 0; i < n; ++i) {
      std::vector<int> blocks(rng() % 20);
      for (int& block : blocks) block = static_cast<int>(rng() % 2 == 0 ? 0 : rng() % 3);
      waiting.add(blocks);
    }
    const Ids ids = waiting.gathered();
    EXPECT_EQ(std::set<std::int64_t>(ids.begin(), ids.end()).size(), static_cast<std::size_t>(n));
    for (const std::size_t length : {1u, 2u, 3u, 4u, 6u, 8u, 12u, 16u}) {
      std::map<BlockHash, std::size_t> last;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::vector<BlockHash>& hashes = waiting.hashes(ids[i]);
        if (hashes.size() < length) continue;
        const auto [at, is_new] = last.try_emplace(hashes[length - 1], i);
        EXPECT_TRUE(is_new || at->second + 1 == i) << "a group of " << length << " blocks is torn apart";
        at->second = i;
      }
    }
  }
}

}  // namespace
}  // namespace baton
