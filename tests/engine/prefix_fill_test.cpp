/// Fills of prefixes that are given up before they are done (engine/pinned_prefixes.h, engine/engine.h).
#include "engine/pinned_prefixes.h"

#include <thread>

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton {
namespace {

using testing::greedy;
using testing::joined;
using testing::random_prompt;

// 750 steps of 16 tokens: whoever gives the fill up does so long before its end.
constexpr std::size_t kPrefixLen = 12'000;

/// An engine that fills "shop" on its own thread, and a thread that waits for it.
class PrefixFill : public testing::EngineOnDevice {
 protected:
  void SetUp() override {
    EngineOnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ModelSpec spec = testing::tiny_spec();
    spec.max_position = 16'384;
    engine_ = make_tiny_engine({.max_num_batched_tokens = 16, .max_model_len = 13'000}, 2000, spec);
  }
  void TearDown() override { wait(); }

  void begin() {
    engine_->start();
    filler_ = std::thread([this] { result_ = engine_->register_prefix("shop", random_prompt(1, kPrefixLen)); });
    while (engine_->metrics().kv_blocks_used.value() == 0) std::this_thread::yield();
  }
  const Result<PrefixInfo>& wait() {
    if (filler_.joinable()) filler_.join();
    return result_;
  }
  void expect_given_up() {
    ASSERT_FALSE(wait()) << "the fill went on to its end";
    EXPECT_EQ(wait().error().code, ErrorCode::unavailable);
    EXPECT_TRUE(engine_->prefixes().empty());
    engine_->stop();
    EXPECT_EQ(engine_->metrics().kv_blocks_used.value(), 0);
    EXPECT_EQ(engine_->metrics().kv_blocks_pinned.value(), 0);
    EXPECT_TRUE(engine_->is_idle());
    engine_->check_invariants();
  }

  std::unique_ptr<Engine> engine_;
  std::thread filler_;
  Result<PrefixInfo> result_;
};

INSTANTIATE_TEST_SUITE_P(Devices, PrefixFill, testing::engine_devices(), testing::name_of_device);

TEST_P(PrefixFill, ends_when_its_prefix_is_removed) {
  begin();
  ASSERT_TRUE(engine_->remove_prefix("shop"));
  expect_given_up();
}

TEST_P(PrefixFill, ends_when_the_engine_drains) {
  begin();
  engine_->begin_drain();
  expect_given_up();
}

TEST_P(PrefixFill, ends_when_the_engine_stops) {
  begin();
  engine_->stop();
  expect_given_up();
}

TEST_P(PrefixFill, leaves_its_name_to_the_next) {
  begin();
  ASSERT_TRUE(engine_->remove_prefix("shop"));
  ASSERT_FALSE(wait());
  const auto again = engine_->register_prefix("shop", random_prompt(1, 100));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->n_pinned_tokens, 96);
  EXPECT_EQ(engine_->prefixes().size(), 1u);
}

TEST_P(PrefixFill, that_is_given_up_is_gone_on_with_by_who_waits_for_it) {
  begin();
  const auto id = engine_->submit(greedy(joined(random_prompt(1, 3000), random_prompt(2, 5)), 3));
  ASSERT_TRUE(id) << id.error().message;
  ASSERT_TRUE(engine_->remove_prefix("shop"));
  ASSERT_FALSE(wait());
  std::map<testing::SequenceKey, testing::Generated> generated;
  for (int i = 0; i < 1000 && !generated[{id->value, 0}].finished; ++i)
    testing::collect(engine_->wait_events(std::chrono::milliseconds(100)), generated);
  EXPECT_EQ((generated[{id->value, 0}].finished), FinishReason::length);
  EXPECT_EQ((generated[{id->value, 0}].tokens.size()), 3u);
}

TEST(PinnedPrefixes, give_back_what_was_pinned_for_a_fill_that_nobody_wants_any_more) {
  PinnedPrefixes prefixes;
  Fill fill;
  ASSERT_TRUE(prefixes.begin_fill("shop", fill));
  EXPECT_FALSE(prefixes.begin_fill("shop", fill)) << "the name is taken";
  fill.pin = KvCache::Pin{nullptr, 3};  // done, and not yet seen by who waits
  EXPECT_FALSE(prefixes.stop_fill("bank"));
  EXPECT_TRUE(prefixes.stop_fill("shop"));
  const auto stopped = prefixes.end_fill({"shop", 50, 0, 1}, fill, 16);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(prefixes.list().empty());

  Fill other;
  ASSERT_TRUE(prefixes.begin_fill("shop", other)) << "the name is free";
  other.pin = KvCache::Pin{nullptr, 3};
  const auto kept = prefixes.end_fill({"shop", 50, 0, 1}, other, 16);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->n_pinned_tokens, 48);
  EXPECT_FALSE(prefixes.stop_fill("shop"));
  EXPECT_FALSE(prefixes.stop_fills());
  EXPECT_EQ(prefixes.remove("shop")->n_blocks, 3);
  EXPECT_FALSE(prefixes.remove("shop"));
}

}  // namespace
}  // namespace baton
