/// The first allocations of each thread that serves requests fail, one at a time, in a long run also with those after it, and
/// those of threads that begin or work beside the requests.
#include "server/allocation_cases.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <new>

#include <gtest/gtest.h>

#include "core/limits/thread_time.h"
#include "core/thread_name.h"
#include "support/long_run.h"

void* operator new(std::size_t size) { return baton::test::allocate(size); }
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }

namespace baton {
namespace {

TEST_P(AllocationTest, that_fails_ends_an_exchange_and_not_the_program) { fail_each(testing::is_long_run() ? 400 : 40); }

TEST_P(AllocationTest, that_fails_with_the_next_ones_does_so_too) {
  if (!testing::is_long_run()) GTEST_SKIP() << "in a long run";
  fail_each(400, 5, 9);
}

INSTANTIATE_TEST_SUITE_P(every_kind, AllocationTest, ::testing::ValuesIn(allocation_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Fails the next allocations of some threads, to the end of the scope.
class Failing {
 public:
  Failing(const char* thread, std::int64_t n_passing, std::int64_t n_failing) {
    test::FailingAllocations::instance().fail(thread, n_passing, n_failing);
  }
  ~Failing() { test::FailingAllocations::instance().stop(); }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
};

TEST(AllocationsOfNewThreads, may_fail_in_a_text_queue) {
  const Failing failing("text-", 0, 1000);
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/2, thread_time);
  std::latch ended(2);
  for (const std::size_t n_bytes : {std::size_t{1}, TextQueue::kLongBytes + 1})
    EXPECT_TRUE(queue.push({.n_bytes = n_bytes, .run = [&] { ended.count_down(); }}));
  ended.wait();
}

TEST(AllocationsOfNewThreads, may_fail_in_a_server) {
  for (const char* const thread :
       {"http", "text-", "answers", "large-answers", "pages", "metrics", "control", "prefixes", "thread-watch"}) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, thread);
    std::optional<Failing> failing(std::in_place, thread, 0, 20);
    const ServerFixture fixture;
    for (int status = 0; status != 200; failing.reset()) status = fixture.get("/metrics").status;
  }
}

/// A folder of prefixes whose files the test's thread looks at and registers, and fails to.
class FolderAllocationTest : public ::testing::Test {
 protected:
  FolderAllocationTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ModelSpec spec = testing::tiny_spec();
    spec.n_vocab = kByteModelVocab;
    engine_ = testing::make_tiny_engine({.max_pinned_blocks = 100}, 256, spec);
    engine_->start();  // its own thread finds memory
    prefixes_.emplace(model_, *engine_);
    made_.emplace(folder_, OutwardLinks::refused, *prefixes_);
  }
  ~FolderAllocationTest() override { std::filesystem::remove_all(folder_); }

  void write(std::string_view name, std::string_view text) const { std::ofstream(folder_ / name) << text; }
  /// One look, and everything that it finds to do; false if memory ran out.
  bool look() {
    now_ += PrefixFolder::kGoneTime;
    try {
      made_->look(now_);
      while (prefixes_->run_next()) {
      }
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  /// The text of a prefix; empty: there is none.
  std::string text_of(std::string_view name) const {
    const Prefixes::Use found = prefixes_->find(name);
    return found ? found->text : "";
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("allocation_folder_{}", ::getpid());
  ServedModel model_ = byte_model();
  std::unique_ptr<Engine> engine_;
  std::optional<Prefixes> prefixes_;
  std::optional<PrefixFolder> made_;
  PrefixFolder::Clock::time_point now_ = PrefixFolder::Clock::now();
};

TEST_F(FolderAllocationTest, that_fails_delays_what_a_look_has_found) {
  name_this_thread("looks");
  test::FailingAllocations& failing = test::FailingAllocations::instance();
  for (std::int64_t k = 0, n_reached = 1; n_reached > 0; k += k < 50 ? 1 : 9) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, fmt::format("allocation {}", k + 1));
    const std::string text = fmt::format("Mugs, {} of them. ", k);
    write("shop.txt", text);
    write("bank.txt", "Lends. ");
    n_reached = 0;
    for (const bool has_bank : {true, false}) {
      if (!has_bank) std::filesystem::remove(folder_ / "bank.txt");
      for (int i = 0; i < 3; ++i) {
        failing.fail("looks", k, 1);
        look();
        n_reached += failing.stop();
      }
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(look());
      EXPECT_EQ(text_of("shop"), text);
      EXPECT_EQ(text_of("bank"), has_bank ? "Lends. " : "");
    }
  }
}

}  // namespace
}  // namespace baton
