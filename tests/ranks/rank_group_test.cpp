#include "ranks/rank_group.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/wait_until.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using Groups = std::vector<std::shared_ptr<RankGroup>>;

Groups make_groups(int world_size, RankOptions options = {}) {
  options.world_size = world_size;
  auto made = RankGroup::make_threads(options);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

/// Runs `body` as every rank, each on a thread.
template <class Body>
void as_ranks(const Groups& groups, const Body& body) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&] { body(*group); });
  for (std::thread& thread : threads) thread.join();
}

/// Calls `attempt` with more and more time until it says that this machine, busy as it is, was fast enough for it.
void with_enough_time(milliseconds time, const std::function<bool(milliseconds)>& attempt) {
  while (!attempt(time)) {
    time *= 4;
    ASSERT_LT(time, std::chrono::minutes(5)) << "no time is enough";
  }
}

/// A rank that is a process. The body runs in it; its result is the exit code.
template <class Body>
pid_t start_rank(const RankListener& listener, RankOptions options, int rank, const Body& body) {
  options.rank = options.local_rank = rank;
  options.master_port = listener.port();
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto group = RankGroup::join(options);
  if (!group) ::_exit(100);
  const int code = body(**group);
  group->reset();
  ::_exit(code);
}

int exit_code_of(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<int> numbers_from(int first, std::size_t n) {
  std::vector<int> numbers(n);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(RankGroup, every_rank_sees_what_the_others_wrote_before_the_barrier) {
  for (const int world_size : {1, 2, 4}) {
    const Groups groups = make_groups(world_size);
    as_ranks(groups, [&](RankGroup& group) {
      auto* numbers = reinterpret_cast<int*>(group.memory().data());
      for (int turn = 1; turn <= 500; ++turn) {
        numbers[group.rank()] = turn * 100 + group.rank();
        ASSERT_TRUE(group.barrier());
        for (int other = 0; other < world_size; ++other) ASSERT_EQ(numbers[other], turn * 100 + other);
        ASSERT_TRUE(group.barrier());
      }
    });
  }
}

class RankGroupMemory : public ::testing::TestWithParam<bool> {
 protected:
  /// With or without shared memory.
  Groups make(int world_size) const {
    return make_groups(world_size, {.memory_bytes = GetParam() ? RankOptions{}.memory_bytes : 0});
  }
};

TEST_P(RankGroupMemory, what_rank_0_sends_arrives_whole_and_in_order_also_beyond_the_ring) {
  const Groups groups = make(3);
  EXPECT_EQ(groups[1]->is_on_one_host(), GetParam());
  const std::vector<std::size_t> sizes = {1, 0, 7, 1000, RankGroup::ring_bytes / 4 + 3, 3 * RankGroup::ring_bytes / 4 + 1};
  as_ranks(groups, [&](RankGroup& group) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<int> expected = numbers_from(static_cast<int>(i), sizes[i]);
      std::vector<int> numbers = group.rank() == 0 ? expected : std::vector<int>(sizes[i]);
      ASSERT_TRUE(group.broadcast(std::as_writable_bytes(std::span(numbers))));
      ASSERT_EQ(numbers, expected);
    }
  });
}

TEST_P(RankGroupMemory, no_rank_leaves_a_barrier_before_all_have_come) {
  const Groups groups = make(3);
  std::array<std::atomic<int>, 3> turns{};
  as_ranks(groups, [&](RankGroup& group) {
    for (int turn = 1; turn <= 50; ++turn) {
      turns.at(static_cast<std::size_t>(group.rank())) = turn;
      ASSERT_TRUE(group.barrier());
      for (const auto& other : turns) ASSERT_GE(other, turn);
    }
  });
}

TEST_P(RankGroupMemory, gather_gives_rank_0_the_bytes_of_each_rank) {
  const Groups groups = make(4);
  as_ranks(groups, [](RankGroup& group) {
    const std::string word(static_cast<std::size_t>(group.rank()), 'x');
    const auto of_ranks = group.gather(std::as_bytes(std::span(word)));
    ASSERT_TRUE(of_ranks) << of_ranks.error().message;
    ASSERT_EQ(of_ranks->size(), group.rank() == 0 ? 4U : 0U);
    for (std::size_t rank = 0; rank < of_ranks->size(); ++rank) EXPECT_EQ((*of_ranks)[rank].size(), rank);
  });
}

TEST_P(RankGroupMemory, a_rank_that_fails_breaks_the_group_with_its_sentence) {
  const Groups groups = make(3);
  groups[2]->fail("its device is gone");
  as_ranks(groups, [](RankGroup& group) {
    if (group.rank() != 2) {
      EXPECT_FALSE(group.barrier());
    }
    EXPECT_EQ(group.wait_fault(testing::kUntilKilled), "rank 2: its device is gone");
    EXPECT_TRUE(group.is_broken());
    EXPECT_FALSE(group.has_ended());
    EXPECT_FALSE(group.gather({}));
  });
}

TEST(RankGroup, a_rank_that_misses_a_barrier_is_named) {
  with_enough_time(milliseconds(50), [](milliseconds time) {
    const Groups groups = make_groups(3, {.barrier_timeout = time});
    std::array<std::string, 3> faults;
    as_ranks(groups, [&](RankGroup& group) {
      if (group.rank() != 1) {
        EXPECT_FALSE(group.barrier());
      }
      faults.at(static_cast<std::size_t>(group.rank())) = group.wait_fault(testing::kUntilKilled).value_or("none");
    });
    return std::ranges::all_of(faults, [](const std::string& fault) {
      EXPECT_NE(fault.find(" has not come to a barrier"), std::string::npos) << fault;
      return fault.find("rank 1 has not come") != std::string::npos;  // another one is late on a busy machine
    });
  });
}

TEST_P(RankGroupMemory, when_rank_0_leaves_the_others_end_without_a_fault) {
  Groups groups = make(3);
  std::array<char, 4> word = {'l', 'a', 's', 't'};
  EXPECT_TRUE(groups[0]->send(std::as_bytes(std::span(word))));
  groups[0].reset();
  for (int rank : {1, 2}) {
    RankGroup& group = *groups[static_cast<std::size_t>(rank)];
    std::array<char, 4> got{};
    EXPECT_TRUE(group.receive(std::as_writable_bytes(std::span(got))));
    EXPECT_EQ(got, word);
    EXPECT_FALSE(group.receive(std::as_writable_bytes(std::span(got))));
    EXPECT_TRUE(group.has_ended());
    EXPECT_FALSE(group.is_broken());
    EXPECT_EQ(group.fault(), std::nullopt);
  }
}

INSTANTIATE_TEST_SUITE_P(, RankGroupMemory, ::testing::Bool(), [](const auto& info) { return info.param ? "shared" : "none"; });

TEST(RankGroup, a_killed_process_is_noticed_while_others_wait_for_it) {
  auto listener = RankListener::bind("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  const RankOptions options{.world_size = 3, .master_port = listener->port()};
  const auto wait_for_others = [](RankGroup& group) {
    if (!group.barrier()) return 1;
    return group.barrier() ? 2 : 3;  // the second fails
  };
  const pid_t first = start_rank(*listener, options, 1, wait_for_others);
  const pid_t second = start_rank(*listener, options, 2, [](RankGroup& group) {
    if (!group.barrier()) return 1;
    ::pause();
    return 2;
  });
  auto group = RankGroup::host(std::move(*listener), options);
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ((*group)->process_ids(), (std::vector<std::int64_t>{::getpid(), first, second}));
  ASSERT_TRUE((*group)->barrier());
  std::thread killer([second] {
    std::this_thread::sleep_for(milliseconds(50));
    ::kill(second, SIGKILL);
  });
  EXPECT_FALSE((*group)->barrier());
  killer.join();
  const std::string fault = (*group)->wait_fault(testing::kUntilKilled).value_or("none");
  EXPECT_EQ(fault, "rank 2 (process " + std::to_string(second) + ") was killed by signal 9 (Killed)");
  EXPECT_EQ(exit_code_of(first), 3);
  EXPECT_EQ(exit_code_of(second), -SIGKILL);
}

TEST(RankGroup, a_stopped_process_is_given_up_after_the_hang_timeout) {
  with_enough_time(milliseconds(3000), [](milliseconds time) {
    auto listener = RankListener::bind("127.0.0.1", 0);
    EXPECT_TRUE(listener);
    const RankOptions options{.world_size = 2, .master_port = listener->port(), .hang_timeout = time};
    const pid_t other = start_rank(*listener, options, 1, [](RankGroup&) { return ::pause(); });
    auto group = RankGroup::host(std::move(*listener), options);
    EXPECT_TRUE(group) << group.error().message;
    const bool lives = !(*group)->wait_fault(time + milliseconds(1000));
    ::kill(other, SIGSTOP);
    const std::string fault = (*group)->wait_fault(testing::kUntilKilled).value_or("none");
    EXPECT_EQ(fault, "rank 1 (process " + std::to_string(other) + ") has given no sign of life for " +
                         std::to_string(time.count() / 1000) + ".0 s");
    ::kill(other, SIGKILL);
    EXPECT_EQ(exit_code_of(other), -SIGKILL);
    return lives;
  });
}

TEST(RankGroup, a_rank_of_another_version_ends_the_start) {
  auto listener = RankListener::bind("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  const RankOptions options{.world_size = 2, .master_port = listener->port(), .token = "a", .version = "baton 2"};
  std::thread joining([other = options]() mutable {
    other.rank = 1;
    other.version = "baton 1";
    const auto joined = RankGroup::join(other);
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().message, "rank 1: rank 1 runs baton 1, and rank 0 baton 2");
  });
  const auto group = RankGroup::host(std::move(*listener), options);
  joining.join();
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().message, "rank 1 runs baton 1, and rank 0 baton 2");
}

/// What rank 0 and rank 1 say of a start in which rank 1 has other options.
std::pair<std::string, std::string> failed_start(RankOptions options, RankOptions other) {
  auto listener = RankListener::bind("127.0.0.1", 0);
  EXPECT_TRUE(listener);
  options.master_port = other.master_port = listener->port();
  other.rank = 1;
  std::string refusal;
  std::thread joining([&] {
    const auto joined = RankGroup::join(other);
    ASSERT_FALSE(joined);
    refusal = joined.error().message;
  });
  const auto group = RankGroup::host(std::move(*listener), options);
  joining.join();
  EXPECT_FALSE(group);
  return {group ? "" : group.error().message, refusal};
}

TEST(RankGroup, a_rank_with_another_world_size_ends_the_start) {
  const auto [said, refusal] = failed_start({.world_size = 2, .token = "a"}, {.world_size = 3, .token = "a"});
  EXPECT_EQ(said, "rank 1 was started for 3 ranks, and rank 0 for 2");
  EXPECT_EQ(refusal, "rank 1: rank 1 was started for 3 ranks, and rank 0 for 2");
}

TEST(RankGroup, a_rank_with_another_token_ends_the_start) {
  with_enough_time(milliseconds(400), [](milliseconds time) {
    const RankOptions options{.world_size = 2, .token = "a", .start_timeout = time};
    RankOptions other = options;
    other.token = "b";
    const auto [said, refusal] = failed_start(options, other);
    if (said.find("(refused: ") == std::string::npos) return false;  // rank 1 came too late
    EXPECT_EQ(said, "rank 1 of 2 has not joined within " + std::to_string(time.count() / 1000) +
                        " s (refused: rank 1 has another token (BATON_RANK_TOKEN))");
    EXPECT_EQ(refusal, "rank 1: rank 0 has another token (BATON_RANK_TOKEN)");
    return true;
  });
}

/// A connection of a program that is not a rank.
class StrangerSocket {
 public:
  StrangerSocket(std::uint16_t port, const std::string& said) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << std::strerror(errno);
    EXPECT_EQ(::send(socket_, said.data(), said.size(), MSG_NOSIGNAL), static_cast<ssize_t>(said.size()));
  }
  StrangerSocket(const StrangerSocket&) = delete;
  StrangerSocket& operator=(const StrangerSocket&) = delete;
  ~StrangerSocket() { ::close(socket_); }

 private:
  int socket_;
};

/// Reading one after the other, for two seconds each, rank 0 would give up before it comes to the rank.
TEST(RankGroup, strangers_neither_end_nor_delay_the_start) {
  auto listener = RankListener::bind("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  const std::uint16_t port = listener->port();
  RankOptions options{.world_size = 2, .master_port = port, .start_timeout = milliseconds(20'000)};
  std::vector<std::unique_ptr<StrangerSocket>> strangers;
  for (int i = 0; i < 15; ++i)
    strangers.push_back(std::make_unique<StrangerSocket>(port, std::string(static_cast<std::size_t>(i), 'B')));
  strangers.push_back(std::make_unique<StrangerSocket>(port, "GET / HTTP/1.1\r\nHost: here\r\n\r\n" + std::string(300, 'x')));
  std::string magic("BatonR2");
  strangers.push_back(std::make_unique<StrangerSocket>(port, magic + std::string(1, '\0') + std::string(400, '\xff')));
  std::string refusal;
  std::shared_ptr<RankGroup> joined;
  std::thread joining([&] {
    RankOptions other = options;
    other.rank = 1;
    other.world_size = 3;
    const auto refused = RankGroup::join(other);
    refusal = refused ? "it was welcome" : refused.error().message;
    other.world_size = 2;
    auto group = RankGroup::join(other);
    if (group) joined = std::move(*group);
  });
  const auto group = RankGroup::host(std::move(*listener), options);
  joining.join();
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_NE(joined, nullptr);
  EXPECT_EQ(refusal, "rank 1: rank 1 was started for 3 ranks, and rank 0 for 2");
}

TEST(RankGroup, tokens_of_any_length_are_compared_as_a_whole) {
  const std::string long_token(3000, 'x');
  for (const std::string& other_token :
       {long_token, long_token + "y", long_token.substr(1), long_token.substr(1) + "y", std::string()}) {
    SCOPED_TRACE(other_token.size());
    auto listener = RankListener::bind("127.0.0.1", 0);
    ASSERT_TRUE(listener);
    RankOptions options{
        .world_size = 2, .master_port = listener->port(), .token = long_token, .start_timeout = milliseconds(60'000)};
    std::shared_ptr<RankGroup> joined;  // it outlives the host's check
    bool was_refused = false;
    std::thread joining([&, other = options]() mutable {
      other.rank = 1;
      other.token = other_token;
      joined = RankGroup::join(other).value_or(nullptr);
      was_refused = joined == nullptr;
      other.token = long_token;
      if (was_refused) joined = RankGroup::join(other).value_or(nullptr);
    });
    EXPECT_TRUE(RankGroup::host(std::move(*listener), options));
    joining.join();
    EXPECT_EQ(was_refused, other_token != long_token);
  }
}

TEST(RankGroup, a_token_is_demanded_where_other_hosts_can_connect) {
  auto listener = RankListener::bind("0.0.0.0", 0);
  ASSERT_TRUE(listener);
  const auto host = RankGroup::host(std::move(*listener), {.world_size = 2});
  ASSERT_FALSE(host);
  EXPECT_EQ(host.error().code, ErrorCode::invalid_request);
  EXPECT_NE(host.error().message.find("BATON_RANK_TOKEN"), std::string::npos) << host.error().message;
  const auto joined = RankGroup::join({.rank = 1, .world_size = 2, .master_addr = "192.0.2.1", .master_port = 29500});
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::invalid_request);
  EXPECT_NE(joined.error().message.find("192.0.2.1:29500"), std::string::npos) << joined.error().message;
}

TEST(RankGroup, a_rank_that_is_lost_before_it_joins_ends_the_start_at_once) {
  auto listener = RankListener::bind("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  const auto group = RankGroup::host(
      std::move(*listener), {.world_size = 2, .find_lost_rank = [] { return std::optional<std::string>("it is not there"); }});
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().message, "it is not there");
}

}  // namespace
}  // namespace baton
