/// The endpoints of KV events (server/observe/kv_event_publisher.h). tests/e2e/test_kv_events.py reads what is published.
#include "server/observe/kv_event_publisher.h"

#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <zmq.hpp>

namespace baton {
namespace {

/// An unused path of a socket.
std::string free_path(const char* name) {
  const auto path = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove(path);
  return path.string();
}

TEST(KvEventPublisher, binds_its_endpoints_and_gives_them_back) {
  const std::string live = free_path("kv_events_live");
  const std::string past = free_path("kv_events_past");
  const KvEventsConfig config{.is_enabled = true, .endpoint = "ipc://" + live, .replay_endpoint = "ipc://" + past};
  for (int round = 0; round < 2; ++round) {
    const auto publisher = KvEventPublisher::bind(config);
    ASSERT_TRUE(publisher) << publisher.error().message;
    EXPECT_TRUE(std::filesystem::is_socket(live));
    EXPECT_TRUE(std::filesystem::is_socket(past));
  }
}

TEST(KvEventPublisher, names_the_endpoint_that_it_cannot_open) {
  const auto refused_with = [](const KvEventsConfig& config, ErrorCode code) {
    const auto publisher = KvEventPublisher::bind(config);
    EXPECT_FALSE(publisher);
    if (publisher) return std::string();
    EXPECT_EQ(publisher.error().code, code);
    EXPECT_EQ(publisher.error().param, "kv_events_config");
    return publisher.error().message;
  };
  EXPECT_NE(refused_with({.endpoint = "ipc:///no/such/folder/a"}, ErrorCode::unavailable).find("ipc:///no/such/folder/a"),
            std::string::npos);
  EXPECT_NE(refused_with({.endpoint = "not an endpoint"}, ErrorCode::invalid_request).find("not an endpoint"),
            std::string::npos);
  const std::string live = "ipc://" + free_path("kv_events_good");
  EXPECT_NE(refused_with({.endpoint = live, .replay_endpoint = "tcp://nowhere.invalid:1"}, ErrorCode::unavailable)
                .find("tcp://nowhere.invalid:1"),
            std::string::npos);
}

/// Waits until the server ends a connection, for as long as the test may run.
class Disconnects : public zmq::monitor_t {
 public:
  void on_event_disconnected(const zmq_event_t& /*event*/, const char* /*address*/) override { has_seen_one = true; }
  bool has_seen_one = false;
};

TEST(KvEventPublisher, a_peer_that_sends_a_large_message_is_disconnected) {
  const KvEventsConfig config{.is_enabled = true,
                              .endpoint = "ipc://" + free_path("kv_events_flooded"),
                              .replay_endpoint = "ipc://" + free_path("kv_events_flooded_past")};
  const auto publisher = KvEventPublisher::bind(config);
  ASSERT_TRUE(publisher) << publisher.error().message;
  zmq::context_t context{1};
  for (const auto& [endpoint, type] :
       {std::pair(config.endpoint, zmq::socket_type::xsub), {config.replay_endpoint, zmq::socket_type::dealer}}) {
    SCOPED_TRACE(endpoint);
    zmq::socket_t peer(context, type);
    peer.set(zmq::sockopt::linger, 0);
    Disconnects monitor;
    monitor.init(peer, "inproc://" + std::to_string(static_cast<int>(type)), ZMQ_EVENT_DISCONNECTED);
    peer.connect(endpoint);
    const std::string large(std::size_t{1} << 20, '\x02');  // no subscription: libzmq's own end recurses into a long one
    peer.send(zmq::buffer(large), zmq::send_flags::none);
    while (!monitor.has_seen_one) monitor.check_event(100);
  }
}

}  // namespace
}  // namespace baton
