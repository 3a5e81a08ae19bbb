/// Addresses, and connections to a server on loopback (bench/http/connections.h).
#include "bench/http/connections.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/http_server.h"

namespace baton {
namespace {

using Clock = Connections::Clock;

ServerAddress address_of(const test::HttpServer& server) { return *parse_server_address(server.url()); }

TEST(Connections, addresses_have_a_host_a_port_and_a_path) {
  const auto parsed = [](const std::string& url) {
    const auto address = parse_server_address(url);
    return address ? fmt::format("{} {} {}", address->authority(), address->port, address->path) : address.error().message;
  };
  EXPECT_EQ(parsed("http://host"), "host:80 80 ");
  EXPECT_EQ(parsed("http://127.0.0.1:8000/"), "127.0.0.1:8000 8000 ");
  EXPECT_EQ(parsed("http://host:8000/a/b/"), "host:8000 8000 /a/b");
  EXPECT_EQ(parsed("http://[::1]:8000"), "[::1]:8000 8000 ");
  for (const std::string url : {"https://host", "host:8000", "http://", "http://:80", "http://host:0", "http://host:x",
                                "http://host:70000", "http://host:80x", "http://[::1"})
    EXPECT_EQ(parsed(url), fmt::format("the URL must be http://HOST:PORT, not '{}'", url));
}

TEST(Connections, bring_each_its_own_answer) {
  const test::HttpServer server([](const test::ServerRequest& request) { return test::ServerReply{.body = request.target}; });
  auto connections = Connections::create(address_of(server), 3);
  ASSERT_TRUE(connections);
  const std::vector<std::string> requests{"GET /0 HTTP/1.1\r\n\r\n", "GET /1 HTTP/1.1\r\n\r\n", "GET /2 HTTP/1.1\r\n\r\n"};
  for (std::size_t i = 0; i < 3; ++i) connections->send(i, requests[i]);
  std::vector<std::string> answers(3);
  std::size_t n_closed = 0;
  for (int turn = 0; turn < 1000 && n_closed < 3; ++turn)
    connections->wait(Clock::now() + std::chrono::seconds(10), [&](const Connections::News& news) {
      answers[news.connection] += news.bytes;
      n_closed += news.is_closed ? 1 : 0;
    });
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(answers[i].ends_with(fmt::format("/{}", i))) << answers[i];
    EXPECT_FALSE(connections->is_open(i));
  }
}

TEST(Connections, report_that_nobody_listens) {
  std::string url;
  {
    const test::HttpServer server([](const test::ServerRequest&) { return test::ServerReply{}; });
    url = server.url();
  }
  auto connections = Connections::create(*parse_server_address(url), 1);
  ASSERT_TRUE(connections);
  connections->send(0, "GET / HTTP/1.1\r\n\r\n");
  std::string end;
  for (int turn = 0; turn < 100 && end.empty(); ++turn)
    connections->wait(Clock::now() + std::chrono::seconds(10), [&](const Connections::News& news) { end = news.end; });
  EXPECT_EQ(end, "cannot connect: Connection refused");
  EXPECT_FALSE(Connections::create({.host = "no-such-host.invalid"}, 1));
}

TEST(Connections, wait_until_a_time_and_not_earlier) {
  const test::HttpServer server([](const test::ServerRequest&) { return test::ServerReply{}; });
  auto connections = Connections::create(address_of(server), 1);
  ASSERT_TRUE(connections);
  for (const int us : {300, 2500, 0}) {
    const auto until = Clock::now() + std::chrono::microseconds(us);
    bool has_news = false;
    connections->wait(until, [&](const Connections::News&) { has_news = true; });
    EXPECT_GE(Clock::now(), until);
    EXPECT_FALSE(has_news);
  }
}

}  // namespace
}  // namespace baton
