/// Pins: prefills that are cancelled before they are done, and what is kept (engine/pin_table.h).
#include "engine/pin_table.h"

#include <stop_token>
#include <thread>

#include <gtest/gtest.h>

#include "core/mutex.h"
#include "support/held_engine.h"

namespace baton {
namespace {

using testing::greedy;
using testing::joined;
using testing::random_prompt;

/// An engine that computes a pinned prompt in 13 steps, of which the device runs none before the test says so, and a thread
/// that waits for it.
class PinPrefills : public ::testing::Test {
 protected:
  PinPrefills() {
    registrar_ = std::thread([this] { result_ = engine_.pin(random_prompt(1, 200), {}, stop_.get_token()); });
    held_.wait();
  }
  ~PinPrefills() override { wait(); }

  const Result<PinInfo>& wait() {
    held_.device->release();
    if (registrar_.joinable()) registrar_.join();
    return result_;
  }
  void expect_given_up() {
    ASSERT_FALSE(wait()) << "the prefill continued to its end";
    EXPECT_EQ(wait().error().code, ErrorCode::unavailable);
    EXPECT_TRUE(engine_.pins().empty());
    engine_.stop();
    EXPECT_EQ(engine_.metrics().kv_blocks_used.value(), 0);
    EXPECT_EQ(engine_.metrics().kv_blocks_pinned.value(), 0);
    EXPECT_TRUE(engine_.is_idle());
    engine_.check_invariants();
  }

  testing::HeldEngine held_{{.max_num_batched_tokens = 16}, /*n_blocks=*/150};
  Engine& engine_ = *held_.engine;
  std::stop_source stop_;
  std::thread registrar_;
  Result<PinInfo> result_;
};

TEST_F(PinPrefills, end_when_they_are_stopped) {
  stop_.request_stop();
  expect_given_up();
}

TEST_F(PinPrefills, end_when_the_engine_drains) {
  engine_.begin_drain();
  expect_given_up();
}

TEST_F(PinPrefills, end_when_the_engine_stops) {
  std::thread stopper([this] { engine_.stop(); });
  testing::wait_until([this] { return engine_.is_draining(); });
  wait();
  stopper.join();
  expect_given_up();
}

TEST_F(PinPrefills, leave_room_for_the_next) {
  stop_.request_stop();
  ASSERT_FALSE(wait());
  const auto again = engine_.pin(random_prompt(1, 100));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->n_pinned_tokens, 96);
  EXPECT_EQ(engine_.pins().size(), 1u);
}

TEST_F(PinPrefills, are_taken_over_by_a_request_that_waits_for_them) {
  const auto id = engine_.submit(greedy(joined(random_prompt(1, 150), random_prompt(2, 5)), 3));
  ASSERT_TRUE(id) << id.error().message;
  stop_.request_stop();
  ASSERT_FALSE(wait());
  const auto generated = held_.finish();
  EXPECT_EQ((generated.at({id->value, 0}).finished), FinishReason::length);
  EXPECT_EQ((generated.at({id->value, 0}).tokens.size()), 3u);
}

TEST(PinTable, gives_up_the_pin_of_a_prefill_that_was_stopped_when_it_was_done) {
  PrefixTree::Node* const node = reinterpret_cast<PrefixTree::Node*>(0x10);  // never dereferenced
  Mutex mutex;
  const MutexLock lock(mutex);
  PinTable pins(16);
  std::stop_source stop;
  PinPrefill prefill{.stop = stop.get_token()};
  pins.begin(prefill, std::vector<TokenId>(50), {});
  EXPECT_TRUE(pins.has_changes());
  SequenceId next{7};
  EXPECT_EQ(pins.take_changes(next, false).begun, std::vector{&prefill});
  EXPECT_EQ(next, SequenceId{8});
  EXPECT_FALSE(pins.has_changes());
  EXPECT_TRUE(pins.take_changes(next, false).is_empty());
  stop.request_stop();
  EXPECT_EQ(pins.take_changes(next, false).cancelled, std::vector{SequenceId{7}});
  EXPECT_TRUE(pins.take_changes(next, false).is_empty()) << "it is cancelled once";
  // It was ready before the engine saw the request to stop.
  EXPECT_EQ(&pins.prefill_of(SequenceId{7}), &prefill);
  pins.end(prefill, KvCache::Pin{node, 3});
  const auto cancelled = pins.wait(mutex, prefill, {});
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::unavailable);
  EXPECT_EQ(pins.take_changes(next, false).unpins.size(), 1u);
  EXPECT_TRUE(pins.pins().empty());
}

TEST(PinTable, keeps_a_pin_until_it_is_unpinned) {
  PrefixTree::Node* const node = reinterpret_cast<PrefixTree::Node*>(0x10);  // never dereferenced
  Mutex mutex;
  const MutexLock lock(mutex);
  PinTable pins(16);
  PinPrefill prefill;
  pins.begin(prefill, std::vector<TokenId>(50), {});
  SequenceId next{0};
  pins.take_changes(next, false);
  EXPECT_TRUE(pins.pins().empty()) << "it is not computed yet";
  pins.end(prefill, KvCache::Pin{node, 3});
  const auto kept = pins.wait(mutex, prefill, Sequence::Clock::now());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->n_tokens, 50);
  EXPECT_EQ(kept->n_pinned_tokens, 48);
  EXPECT_GE(kept->prefill_ms, 0);
  EXPECT_TRUE(pins.take_changes(next, true).is_empty()) << "nothing is being computed";
  EXPECT_EQ(pins.pins().size(), 1u);
  pins.unpin(kept->id);
  EXPECT_EQ(pins.take_changes(next, false).unpins.at(kept->id).pin.n_blocks, 3);
  EXPECT_TRUE(pins.pins().empty());
}

TEST(PinTable, cancels_all_prefills_of_an_engine_that_drains) {
  Mutex mutex;
  const MutexLock lock(mutex);
  PinTable pins(16);
  PinPrefill prefill;
  pins.begin(prefill, std::vector<TokenId>(50), {});
  SequenceId next{3};
  EXPECT_EQ(pins.take_changes(next, true).cancelled, std::vector{SequenceId{3}});
  pins.end(prefill, KvCache::Pin{});
  EXPECT_FALSE(pins.wait(mutex, prefill, {}));
  EXPECT_FALSE(pins.has_changes()) << "it had no blocks";
}

}  // namespace
}  // namespace baton
