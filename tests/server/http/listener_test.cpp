/// Ports, hosts and Unix sockets (server/http/listener.h).
#include "server/http/listener.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "server/http_fixture.h"

namespace baton {
namespace {

std::string socket_file(const std::string& name) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_listener_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

TEST(HttpListener, says_in_a_sentence_that_a_port_is_in_use) {
  HttpFixture fixture;
  const std::uint16_t port = fixture.server->port();
  const auto second = HttpServer::bind({.host = "127.0.0.1", .port = port}, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            "port " + std::to_string(port) + " of 127.0.0.1 is in use by another program; choose another with --port");
}

TEST(HttpListener, says_which_host_is_unknown) {
  const auto server = HttpServer::bind({.host = "no such host", .port = 0}, {});
  ASSERT_FALSE(server);
  EXPECT_TRUE(server.error().message.starts_with("the host 'no such host' is unknown: ")) << server.error().message;
}

TEST(HttpListener, serves_a_unix_socket_replaces_a_stale_one_and_removes_its_own) {
  const std::string path = socket_file("uds");
  {
    HttpFixture fixture({}, {.uds = path});
    EXPECT_EQ(fixture.server->address(), "unix:" + path);
    RawClient client(path);
    EXPECT_EQ(client.get("/echo").status, 200);
    const auto second = HttpServer::bind({.uds = path}, {});
    ASSERT_FALSE(second);
    EXPECT_TRUE(second.error().message.starts_with("cannot listen on the socket " + path)) << second.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // A killed server leaves a socket file without a listener.
  const int left_over = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(left_over, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(left_over);
  HttpFixture fixture({}, {.uds = path});
  RawClient client(path);
  EXPECT_EQ(client.get("/echo").status, 200);
}

TEST(HttpListener, does_not_replace_a_file_that_is_no_socket) {
  const std::string path = socket_file("plain");
  std::fclose(std::fopen(path.c_str(), "w"));
  EXPECT_FALSE(HttpServer::bind({.uds = path}, {}));
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST(HttpListener, two_servers_that_start_on_one_unix_socket_do_not_take_it_from_each_other) {
  const std::string path = socket_file("both");
  boost::asio::io_context io;
  {
    HttpListener first(io);
    ASSERT_TRUE(first.bind({.uds = path}));
    // The first loads its model: its socket is bound, and does not listen yet.
    {
      HttpListener second(io);
      const auto refused = second.bind({.uds = path});
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().message, "cannot listen on the socket " + path + ": another server holds " + path + ".lock");
    }
    ASSERT_TRUE(first.listen());
    EXPECT_TRUE(RawClient(path).is_connected());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  HttpListener next(io);
  EXPECT_TRUE(next.bind({.uds = path})) << "the lock outlives its server";
}

}  // namespace
}  // namespace baton
