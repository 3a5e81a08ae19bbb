#include "bench/http/server_address.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ServerAddress, has_a_host_a_port_and_a_path) {
  const auto parsed = [](const std::string& url) {
    const auto address = parse_server_address(url);
    return address ? fmt::format("{} {} {}", address->authority(), address->port, address->path) : address.error().message;
  };
  EXPECT_EQ(parsed("http://host"), "host:80 80 ");
  EXPECT_EQ(parsed("http://127.0.0.1:8000/"), "127.0.0.1:8000 8000 ");
  EXPECT_EQ(parsed("http://host:8000/a/b/"), "host:8000 8000 /a/b");
  EXPECT_EQ(parsed("http://[::1]:8000"), "[::1]:8000 8000 ");
  EXPECT_EQ(parse_server_address("http://host:8000/a/")->url(), "http://host:8000/a");
  for (const std::string url : {"https://host", "host:8000", "http://", "http://:80", "http://host:0", "http://host:x",
                                "http://host:70000", "http://host:80x", "http://[::1"})
    EXPECT_EQ(parsed(url), fmt::format("the URL must be http://HOST:PORT, not '{}'", url));
}

}  // namespace
}  // namespace baton
