#include "ranks/rank_memory.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::milliseconds;

TEST(RankMemory, the_same_bytes_stand_at_both_addresses) {
  const auto memory = RankMemory::create(2, 10'000).value();
  const auto other = RankMemory::attach(memory->place());
  ASSERT_NE(other, nullptr);
  ASSERT_GE(memory->user().size(), 10'000U);
  ASSERT_NE(memory->user().data(), other->user().data());
  EXPECT_EQ(other->user()[9'999], std::byte{0});
  memory->user()[9'999] = std::byte{7};
  EXPECT_EQ(other->user()[9'999], std::byte{7});
}

TEST(RankMemory, other_memory_than_the_one_meant_is_not_attached) {
  const auto memory = RankMemory::create(2, 100).value();
  const std::vector<std::function<void(RankMemoryPlace&)>> changes = {
      [](RankMemoryPlace& place) { ++place.token; },
      [](RankMemoryPlace& place) { ++place.n_ranks; },
      [](RankMemoryPlace& place) { place.size_bytes += 4096; },
      [](RankMemoryPlace& place) { place.descriptor = 100'000; },
      [](RankMemoryPlace& place) { place.descriptor = 0; },
      [](RankMemoryPlace& place) { place.process = 1 << 30; },
  };
  for (const auto& change : changes) {
    RankMemoryPlace place = memory->place();
    change(place);
    EXPECT_EQ(RankMemory::attach(place), nullptr);
  }
}

TEST(RankMemory, waits_end_when_the_caller_says_so_or_when_a_rank_marks_it_broken) {
  const auto memory = RankMemory::create(2, 100).value();
  const auto other = RankMemory::attach(memory->place());
  int n_asked = 0;
  const RankMemory::BarrierEnd asked = memory->barrier(0, milliseconds(10'000), [&] { return ++n_asked == 3; });
  EXPECT_FALSE(asked.is_reached);
  EXPECT_EQ(asked.late_rank, -1);
  std::byte byte{};
  EXPECT_FALSE(other->read(1, {&byte, 1}, [] { return true; }));
  EXPECT_FALSE(memory->is_broken());
  other->mark_broken();
  EXPECT_TRUE(memory->is_broken());
  EXPECT_FALSE(memory->barrier(0, milliseconds(10'000), [] { return false; }).is_reached);
  EXPECT_FALSE(other->read(1, {&byte, 1}, [] { return false; }));
}

TEST(RankMemory, leaves_no_file_behind) {
  const auto memory = RankMemory::create(2, 100).value();
  std::string name(256, '\0');
  const std::string path = "/proc/self/fd/" + std::to_string(memory->place().descriptor);
  const ssize_t n = ::readlink(path.c_str(), name.data(), name.size());
  ASSERT_GT(n, 0);
  EXPECT_NE(name.find("(deleted)"), std::string::npos) << name;
}

}  // namespace
}  // namespace baton
