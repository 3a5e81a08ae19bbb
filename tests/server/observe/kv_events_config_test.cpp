/// The keys of --kv-events-config (server/observe/kv_event_publisher.h).
#include "server/observe/kv_event_publisher.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

Result<KvEventsConfig> events_config(std::string_view text) {
  const auto value = json::parse(text, "the flag");
  EXPECT_TRUE(value) << text;
  return parse_kv_events_config(*value, "--kv-events-config");
}

TEST(KvEventsConfig, publishes_nothing_unless_it_is_enabled) {
  EXPECT_FALSE(events_config("{}").value().is_enabled);
  EXPECT_FALSE(events_config(R"({"enable_kv_cache_events": false})").value().is_enabled);
  EXPECT_FALSE(events_config(R"({"enable_kv_cache_events": true, "publisher": "null"})").value().is_enabled);
  const KvEventsConfig on = events_config(R"({"enable_kv_cache_events": true})").value();
  EXPECT_TRUE(on.is_enabled);
  EXPECT_EQ(on.endpoint, "tcp://*:5557");
  EXPECT_EQ(on.encoding, KvEventEncoding::map);
  EXPECT_EQ(on.block_names, KvBlockNames::integers);
}

TEST(KvEventsConfig, reads_every_key) {
  const KvEventsConfig all = events_config(R"({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "ipc:///tmp/a",
                                               "replay_endpoint": "tcp://*:1", "buffer_steps": 5, "hwm": 6, "topic": "kv@a@b",
                                               "encoding": "array", "block_hashes": "bytes"})")
                                 .value();
  EXPECT_EQ(all.endpoint, "ipc:///tmp/a");
  EXPECT_EQ(all.replay_endpoint, "tcp://*:1");
  EXPECT_EQ(all.buffer_steps, 5u);
  EXPECT_EQ(all.high_water_mark, 6);
  EXPECT_EQ(all.topic, "kv@a@b");
  EXPECT_EQ(all.encoding, KvEventEncoding::array);
  EXPECT_EQ(all.block_names, KvBlockNames::bytes);
}

TEST(KvEventsConfig, leaves_other_endpoints_to_the_library) {
  for (const char* const endpoint :
       {"tcp://*:*", "tcp://[::]:65535", "tcp://host:0", "ipc:///tmp/a:99999", "tcp://", "nonsense"})
    EXPECT_TRUE(events_config(std::string(R"({"endpoint": ")") + endpoint + "\"}")) << endpoint;
}

TEST(KvEventsConfig, refuses_by_name) {
  const std::pair<const char*, const char*> wrong[] = {
      {"[]", "an object"},
      {R"({"max_queue_size": 5})", "max_queue_size"},
      {R"({"publisher": "kafka"})", "'publisher' must be \"zmq\" or \"null\""},
      {R"({"enable_kv_cache_events": 1})", "enable_kv_cache_events"},
      {R"({"endpoint": ""})", "'endpoint' is empty"},
      {R"({"endpoint": 5})", "endpoint"},
      {R"({"endpoint": "tcp://*:99999"})", "'endpoint' must have a port from 0 to 65535, and is tcp://*:99999"},
      {R"({"replay_endpoint": "tcp://[::1]:65536"})", "'replay_endpoint' must have a port from 0 to 65535"},
      {R"({"endpoint": "tcp://*:99999999999999999999"})", "'endpoint' must have a port"},
      {R"({"buffer_steps": 0})", "'buffer_steps' must be from 1"},
      {R"({"hwm": -1})", "'hwm' must be from 0"},
      {R"({"encoding": "xml"})", "'encoding' must be \"map\" or \"array\""},
      {R"({"block_hashes": "text"})", "'block_hashes' must be \"int\" or \"bytes\""},
  };
  for (const auto& [text, sentence] : wrong) {
    const auto refused = events_config(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_request) << text;
    EXPECT_EQ(refused.error().param, "--kv-events-config") << text;
    EXPECT_NE(refused.error().message.find(sentence), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace baton
