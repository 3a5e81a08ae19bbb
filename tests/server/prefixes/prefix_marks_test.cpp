/// Marked prompts with a time to live (server/prefixes/prefixes.h), over an engine with a small random model.
#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/prefixes/prefixes.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

using Clock = Prefixes::Clock;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Clock::time_point kNow{std::chrono::hours(1)};

class MarkedPrompts : public ::testing::Test {
 protected:
  explicit MarkedPrompts(std::unique_ptr<Engine> engine = testing::make_tiny_engine({}, 256)) : engine_(std::move(engine)) {}
  void SetUp() override {
    engine_->start();
    block_len_ = engine_->info().block_len;
  }
  void TearDown() override { engine_->stop(); }

  /// A prompt of whole blocks that begins with `first`.
  PrefixDefinition prompt(TokenId first, int n_blocks, std::string owner = "anna", seconds ttl = minutes(5)) const {
    std::vector<TokenId> tokens(static_cast<std::size_t>(n_blocks * block_len_));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((first + i) % 40);
    PrefixDefinition prompt;
    prompt.source = PrefixSource::mark;
    prompt.ttl = ttl;
    prompt.tokens = std::move(tokens);
    prompt.owner = std::move(owner);
    return prompt;
  }
  std::size_t n_pinned() const { return engine_->pins().size(); }
  std::int64_t n_blocks() const {
    std::int64_t n = 0;
    for (const PinInfo& pin : engine_->pins()) n += pin.n_pinned_tokens / block_len_;
    return n;
  }

  const ServedModel model_ = byte_model();
  std::unique_ptr<Engine> engine_;
  std::int32_t block_len_ = 0;
};

/// With recurrent layers and 9 snapshots, of which two may be of marked prompts.
class MarkedStates : public MarkedPrompts {
 protected:
  MarkedStates() : MarkedPrompts(testing::make_tiny_engine(options(), 256, testing::recurrent_spec())) {}
  static EngineOptions options() {
    const std::int64_t slot_bytes = testing::make_tiny_engine({}, 256, testing::recurrent_spec())->info().state_slot_bytes;
    return {.snapshot_bytes = 9 * slot_bytes};
  }
};

TEST_F(MarkedPrompts, keep_a_prompt_for_its_time_after_the_last_use) {
  Prefixes pins(model_, *engine_, {.max_marked_blocks = 16});
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_EQ(n_pinned(), 1u);
  EXPECT_EQ(engine_->pins()[0].n_pinned_tokens, 2 * block_len_);
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow + minutes(4))) << "it is used again";
  EXPECT_EQ(n_pinned(), 1u);
  EXPECT_EQ(pins.remove_expired(kNow + minutes(6)), kNow + minutes(9));
  EXPECT_EQ(pins.remove_expired(kNow + minutes(9)), std::nullopt);
  EXPECT_EQ(n_pinned(), 0u);
  EXPECT_EQ(n_blocks(), 0);
}

TEST_F(MarkedPrompts, drop_the_least_recently_used) {
  Prefixes pins(model_, *engine_, {.max_marked_blocks = 4});
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(2, 2, "bert"), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(3, 2), kNow));
  EXPECT_EQ(n_blocks(), 4);
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_EQ(n_pinned(), 2u) << "it was kept, bert's was not";
  EXPECT_FALSE(pins.keep_marked(prompt(4, 5), kNow)) << "it is larger than all may be";
  EXPECT_EQ(n_pinned(), 2u);
}

TEST_F(MarkedPrompts, stay_within_the_limit_of_their_owner) {
  Prefixes pins(model_, *engine_, {.max_marked_blocks = 16});
  const auto limited = [&](TokenId first, int n_blocks) {
    PrefixDefinition request = prompt(first, n_blocks);
    request.max_pinned_blocks = 3;
    return request;
  };
  EXPECT_TRUE(pins.keep_marked(prompt(9, 4, "bert"), kNow));
  EXPECT_TRUE(pins.keep_marked(limited(1, 2), kNow));
  EXPECT_TRUE(pins.keep_marked(limited(2, 2), kNow));
  EXPECT_EQ(n_blocks(), 4 + 2);
  EXPECT_FALSE(pins.keep_marked(limited(3, 4), kNow));
  EXPECT_EQ(n_pinned(), 2u);
}

TEST_F(MarkedStates, have_a_quarter_of_the_snapshots) {
  Prefixes pins(model_, *engine_, {.max_marked_blocks = 64});
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(2, 2), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow)) << "it is used again";
  EXPECT_TRUE(pins.keep_marked(prompt(3, 2), kNow)) << "the second ends";
  EXPECT_EQ(n_pinned(), 2u);
  EXPECT_EQ(engine_->metrics().state_snapshots_pinned.value(), 2);
  const std::size_t n_before = n_pinned();
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_EQ(n_pinned(), n_before);
}

TEST_F(MarkedStates, stay_beside_a_longer_one) {
  Prefixes pins(model_, *engine_, {.max_marked_blocks = 64});
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(1, 4), kNow));
  EXPECT_EQ(n_pinned(), 2u) << "the longer one has no state at the end of the shorter";
  EXPECT_EQ(engine_->metrics().state_snapshots_pinned.value(), 2);
}

TEST_F(MarkedPrompts, end_when_a_longer_one_covers_them) {
  Prefixes pins(model_, *engine_, {.max_marked_blocks = 16});
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(1, 3), kNow));
  EXPECT_EQ(n_pinned(), 1u);
  EXPECT_EQ(n_blocks(), 3);
  EXPECT_TRUE(pins.keep_marked(prompt(1, 4, "bert"), kNow));
  EXPECT_EQ(n_pinned(), 2u) << "another key's pin covers nothing";
  EXPECT_TRUE(pins.keep_marked(prompt(1, 1, "bert", std::chrono::hours(1)), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(1, 5, "bert"), kNow));
  EXPECT_EQ(n_pinned(), 3u) << "the short one lives longer";
}

TEST_F(MarkedPrompts, keep_the_prompts_of_salts_apart) {
  Prefixes pins(model_, *engine_, {.max_marked_blocks = 16});
  const auto salted = [&](std::string salt, int n_blocks, std::int32_t salt_from = 0) {
    PrefixDefinition request = prompt(1, n_blocks);
    request.scope = {.adapter = {}, .salt = std::move(salt), .salt_from = salt_from};
    return request;
  };
  EXPECT_TRUE(pins.keep_marked(salted("a", 2), kNow));
  EXPECT_TRUE(pins.keep_marked(salted("b", 2), kNow));
  EXPECT_TRUE(pins.keep_marked(prompt(1, 2), kNow));
  EXPECT_EQ(n_pinned(), 3u) << "the same tokens, but other blocks";
  EXPECT_TRUE(pins.keep_marked(salted("a", 2), kNow));
  EXPECT_EQ(n_pinned(), 3u);
  EXPECT_TRUE(pins.keep_marked(salted("b", 3), kNow));
  EXPECT_EQ(n_pinned(), 3u) << "it covers the shorter one of b, and none of the others";
  EXPECT_EQ(n_blocks(), 2 + 2 + 3);
  EXPECT_TRUE(pins.keep_marked(salted("c", 2, 2 * block_len_), kNow));
  EXPECT_EQ(n_pinned(), 3u) << "its salt begins after it: these are the blocks that all share";
}

}  // namespace
}  // namespace baton
