/// Registered prefixes: prefills that are cancelled before they are done, and pins.
#include "engine/prefix_service.h"

#include <thread>

#include <gtest/gtest.h>

#include "core/mutex.h"
#include "support/held_engine.h"

namespace baton {
namespace {

using testing::greedy;
using testing::joined;
using testing::random_prompt;

/// An engine that computes the prefix "shop" in 13 steps, of which the device runs none before the test says so, and a thread
/// that waits for it.
class PrefixPrefills : public ::testing::Test {
 protected:
  PrefixPrefills() {
    registrar_ = std::thread([this] { result_ = engine_.register_prefix("shop", random_prompt(1, 200)); });
    held_.wait();
  }
  ~PrefixPrefills() override { wait(); }

  const Result<PrefixInfo>& wait() {
    held_.device->release();
    if (registrar_.joinable()) registrar_.join();
    return result_;
  }
  void expect_given_up() {
    ASSERT_FALSE(wait()) << "the prefill went on to its end";
    EXPECT_EQ(wait().error().code, ErrorCode::unavailable);
    EXPECT_TRUE(engine_.prefixes().empty());
    engine_.stop();
    EXPECT_EQ(engine_.metrics().kv_blocks_used.value(), 0);
    EXPECT_EQ(engine_.metrics().kv_blocks_pinned.value(), 0);
    EXPECT_TRUE(engine_.is_idle());
    engine_.check_invariants();
  }

  testing::HeldEngine held_{{.max_num_batched_tokens = 16}, /*n_blocks=*/150};
  Engine& engine_ = *held_.engine;
  std::thread registrar_;
  Result<PrefixInfo> result_;
};

TEST_F(PrefixPrefills, end_when_their_prefix_is_removed) {
  ASSERT_TRUE(engine_.remove_prefix("shop"));
  expect_given_up();
}

TEST_F(PrefixPrefills, end_when_the_engine_drains) {
  engine_.begin_drain();
  expect_given_up();
}

TEST_F(PrefixPrefills, end_when_the_engine_stops) {
  std::thread stopper([this] { engine_.stop(); });
  testing::wait_until([this] { return engine_.is_draining(); });
  wait();
  stopper.join();
  expect_given_up();
}

TEST_F(PrefixPrefills, leave_their_name_to_the_next) {
  ASSERT_TRUE(engine_.remove_prefix("shop"));
  ASSERT_FALSE(wait());
  const auto again = engine_.register_prefix("shop", random_prompt(1, 100));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->n_pinned_tokens, 96);
  EXPECT_EQ(engine_.prefixes().size(), 1u);
}

TEST_F(PrefixPrefills, are_taken_over_by_a_request_that_waits_for_them) {
  const auto id = engine_.submit(greedy(joined(random_prompt(1, 150), random_prompt(2, 5)), 3));
  ASSERT_TRUE(id) << id.error().message;
  ASSERT_TRUE(engine_.remove_prefix("shop"));
  ASSERT_FALSE(wait());
  const auto generated = held_.finish();
  EXPECT_EQ((generated.at({id->value, 0}).finished), FinishReason::length);
  EXPECT_EQ((generated.at({id->value, 0}).tokens.size()), 3u);
}

TEST(PrefixService, gives_up_the_pin_of_a_prefix_that_was_removed_while_it_was_computed) {
  PrefixTree::Node* const node = reinterpret_cast<PrefixTree::Node*>(0x10);  // never dereferenced
  Mutex mutex;
  const MutexLock lock(mutex);
  PrefixService prefixes(16);
  PrefixPrefill prefill;
  ASSERT_TRUE(prefixes.begin("shop", prefill));
  EXPECT_FALSE(prefixes.begin("shop", prefill)) << "the name is taken";
  EXPECT_EQ(prefixes.take_changes().begun, std::vector{&prefill});
  EXPECT_FALSE(prefixes.has_changes());
  RunningPrefills prefills;
  prefills.started(SequenceId{7}, prefill);
  EXPECT_TRUE(prefills.cancelled().empty());
  EXPECT_EQ(prefixes.remove("bank").error().code, ErrorCode::not_found);
  EXPECT_TRUE(prefixes.remove("shop"));
  EXPECT_TRUE(prefixes.take_changes().has_cancelled);
  EXPECT_EQ(prefills.cancelled(), std::vector{SequenceId{7}});
  // It was ready before the engine saw the removal.
  EXPECT_EQ(prefills.take_ended(SequenceId{7}), &prefill);
  EXPECT_EQ(prefills.take_ended(SequenceId{7}), nullptr);
  prefixes.end(prefill, KvCache::Pin{node, 3});
  const auto cancelled = prefixes.wait(mutex, {"shop", 50}, prefill, {});
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::unavailable);
  EXPECT_EQ(prefixes.take_changes().unpins.size(), 1u);
  EXPECT_TRUE(prefixes.list().empty());
}

TEST(PrefixService, keeps_a_prefix_until_it_is_removed) {
  PrefixTree::Node* const node = reinterpret_cast<PrefixTree::Node*>(0x10);  // never dereferenced
  Mutex mutex;
  const MutexLock lock(mutex);
  PrefixService prefixes(16);
  PrefixPrefill prefill;
  ASSERT_TRUE(prefixes.begin("shop", prefill));
  prefixes.end(prefill, KvCache::Pin{node, 3});
  const auto kept = prefixes.wait(mutex, {"shop", 50}, prefill, Sequence::Clock::now());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->n_pinned_tokens, 48);
  EXPECT_GE(kept->prefill_ms, 0);
  prefixes.take_changes();
  prefixes.cancel_prefills();
  EXPECT_FALSE(prefixes.has_changes()) << "nothing is being computed";
  EXPECT_FALSE(prefixes.begin("shop", prefill)) << "the name is taken";
  EXPECT_EQ(prefixes.list().size(), 1u);
  EXPECT_TRUE(prefixes.remove("shop"));
  EXPECT_EQ(prefixes.take_changes().unpins.front().n_blocks, 3);
  EXPECT_FALSE(prefixes.remove("shop"));
}

}  // namespace
}  // namespace baton
