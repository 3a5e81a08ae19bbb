/// Prefixes that are wanted: they wait, take turns, are left and removed (server/prefixes/prefixes.h).
#include <string>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/prefixes/prefixes.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

/// Prefixes that are computed on the test's thread, when it says so.
class WantedPrefixes : public ::testing::Test {
 protected:
  WantedPrefixes() {
    ModelSpec spec = testing::tiny_spec();
    spec.n_vocab = kByteModelVocab;
    engine_ = testing::make_tiny_engine({}, 256, spec);
    prefixes_.emplace(model_, *engine_, PrefixLimits{.max_bytes = 1000});
    prefixes_->answer_by([this](const Prefixes::Asked& asked, const Error* error) {
      answers_ += std::to_string(asked.exchange.value) + asked.name + (error == nullptr ? " " : ": " + error->message + " ");
    });
  }
  Result<void> want(int exchange, std::string name, std::size_t n_bytes = 1) {
    PrefixRequest request;
    request.definition = {std::move(name), system_messages(std::string(n_bytes, 'a'))};
    request.definition.source = PrefixSource::api;
    return prefixes_->want(ExchangeId{exchange}, std::move(request));
  }
  void want_file(std::string name, std::string text) {
    PrefixDefinition definition{std::move(name), system_messages(std::move(text))};
    definition.source = PrefixSource::folder;
    prefixes_->want_file(std::move(definition));
  }
  std::string names() const {
    std::string all;
    prefixes_->for_each([&](const Prefixes::Entry& entry) { all += entry.definition.name + " "; });
    return all;
  }

  const ServedModel model_ = byte_model();
  std::unique_ptr<Engine> engine_;
  std::optional<Prefixes> prefixes_;
  std::string answers_;
};

TEST_F(WantedPrefixes, are_computed_in_order_and_answered) {
  EXPECT_FALSE(prefixes_->run_next());
  ASSERT_TRUE(want(1, "a") && want(2, "b") && want(3, "a"));
  EXPECT_TRUE(prefixes_->run_next());
  EXPECT_EQ(answers_, "1a ");
  EXPECT_TRUE(prefixes_->run_next() && prefixes_->run_next());
  EXPECT_EQ(answers_, "1a 2b 3a: prefix a is already registered; another version would replace it ");
  EXPECT_FALSE(prefixes_->run_next());
  EXPECT_EQ(names(), "a b ");
}

TEST_F(WantedPrefixes, wait_up_to_a_number_and_bytes) {
  ASSERT_TRUE(want(0, "a", 5000)) << "one may always wait; its size has a limit of its own";
  EXPECT_FALSE(want(1, "b"));
  prefixes_->leave(ExchangeId{0});
  EXPECT_TRUE(want(1, "b"));
  prefixes_.emplace(model_, *engine_);
  prefixes_->answer_by([](const Prefixes::Asked&, const Error*) {});
  for (std::size_t i = 0; i < kMaxQueuedPrefixes; ++i) ASSERT_TRUE(want(static_cast<int>(i), "a"));
  EXPECT_EQ(want(99, "b").error().code, ErrorCode::unavailable);
  prefixes_->run_next();
  EXPECT_TRUE(want(99, "b"));
}

TEST_F(WantedPrefixes, are_forgotten_when_their_client_leaves_and_refused_when_they_are_removed) {
  for (const auto& [exchange, name] : {std::pair(1, "a"), {2, "b"}, {3, "b"}, {4, "c"}}) ASSERT_TRUE(want(exchange, name));
  EXPECT_TRUE(prefixes_->remove("b", PrefixSource::api));
  EXPECT_EQ(answers_, "2b: prefix b was removed before it was computed 3b: prefix b was removed before it was computed ");
  EXPECT_FALSE(prefixes_->remove("b", PrefixSource::api));
  prefixes_->leave(ExchangeId{4});
  while (prefixes_->run_next()) {
  }
  EXPECT_EQ(names(), "a ");
}

TEST_F(WantedPrefixes, of_files_take_turns_with_those_of_the_api_and_have_the_last_contents) {
  for (const char* text : {"old", "new"}) want_file("x", text);
  want_file("y", "other");
  want_file("z", "other");
  ASSERT_TRUE(want(1, "a") && want(2, "b"));
  while (prefixes_->run_next()) {
  }
  EXPECT_EQ(names(), "x a y b z ");
  EXPECT_EQ(prefixes_->find("x")->text, "new");
  EXPECT_EQ(prefixes_->find("x")->info.id, PinId{0}) << "the old contents were not computed";
}

}  // namespace
}  // namespace baton
