/// Requests of io/http_client.h to a server on loopback.
#include "io/http_client.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/http_server.h"

namespace baton {
namespace {

using test::HttpServer;
using test::ServerReply;
using test::ServerRequest;

class HttpClient : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    // the machine's proxies must not be used for loopback
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}) ::unsetenv(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "baton_http_client_test";
};

TEST_F(HttpClient, a_reply_of_any_status_is_a_result) {
  HttpServer server([](const ServerRequest& request) {
    return ServerReply{.status = request.target == "/there" ? 200 : 404, .headers = "X-Thing:  a b \r\n", .body = "text"};
  });
  const auto found = http_get(server.url() + "/there", "");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->status, 200);
  EXPECT_EQ(found->body, "text");
  EXPECT_EQ(found->headers.at("x-thing"), "a b");
  EXPECT_EQ(http_get(server.url() + "/gone", "")->status, 404);
  EXPECT_EQ(server.requests()[0].head.find("Authorization"), std::string::npos);
}

TEST_F(HttpClient, no_reply_is_an_error_that_names_the_address) {
  const auto reply = http_get("http://127.0.0.1:1/x", "");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(reply.error().message.starts_with("http://127.0.0.1:1/x: ")) << reply.error().message;
  EXPECT_FALSE(http_get("file:///etc/hostname", ""));
}

TEST_F(HttpClient, head_follows_redirects_until_a_reply_is_enough) {
  HttpServer server([](const ServerRequest& request) {
    if (request.target == "/moved") return ServerReply{.status = 307, .headers = "Location: /new\r\n"};
    if (request.target == "/round") return ServerReply{.status = 307, .headers = "Location: /round\r\n"};
    return ServerReply{.status = 302, .headers = "Location: http://elsewhere.invalid/\r\nETag: \"1\"\r\n"};
  });
  const auto has_etag = [](const HttpReply& reply) { return reply.headers.contains("etag"); };
  const auto reply = http_head(server.url() + "/moved", "", has_etag);
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->status, 302);
  EXPECT_EQ(reply->headers.at("etag"), "\"1\"");
  EXPECT_EQ(http_head(server.url() + "/round", "", has_etag).error().message, server.url() + "/round: too many redirects");
}

TEST_F(HttpClient, head_follows_redirects_to_another_server_without_the_token) {
  HttpServer storage([](const ServerRequest& request) {
    if (request.target == "/a/b") return ServerReply{.status = 308, .headers = "Location: c\r\n"};
    return ServerReply{.headers = "ETag: \"1\"\r\n", .body = request.target};
  });
  HttpServer hub([&](const ServerRequest& request) {
    return ServerReply{
        .status = request.target == "/nowhere" ? 301 : 308,
        .headers = "Location: " + (request.target == "/nowhere" ? "gopher://x" : storage.url() + "/a/b") + "\r\n"};
  });
  const auto never = [](const HttpReply&) { return false; };
  const auto reply = http_head(hub.url() + "/file", "secret", never);
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->headers.at("etag"), "\"1\"");
  EXPECT_NE(hub.requests()[0].head.find("Authorization: Bearer secret\r\n"), std::string::npos);
  ASSERT_EQ(storage.requests().size(), 2u);
  EXPECT_EQ(storage.requests()[1].target, "/a/c");
  for (const auto& request : storage.requests()) EXPECT_EQ(request.head.find("secret"), std::string::npos);
  EXPECT_FALSE(http_head(hub.url() + "/nowhere", "secret", never));
}

TEST_F(HttpClient, the_token_stays_with_the_first_server) {
  HttpServer storage([](const ServerRequest&) { return ServerReply{.body = "bytes"}; });
  HttpServer hub(
      [&](const ServerRequest&) { return ServerReply{.status = 302, .headers = "Location: " + storage.url() + "/blob\r\n"}; });
  ASSERT_TRUE(http_download(hub.url() + "/file", "secret", folder_ / "file", 5, {}));
  EXPECT_EQ(read_file(folder_ / "file").value(), "bytes");
  EXPECT_NE(hub.requests()[0].head.find("Authorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_EQ(storage.requests()[0].head.find("secret"), std::string::npos);
}

TEST_F(HttpClient, a_download_under_the_floor_of_speed_ends_with_a_sentence_and_is_continued_by_the_next) {
  bool stalls = true;
  HttpServer server([&](const ServerRequest& request) {
    if (stalls) return ServerReply{.body = "123456", .cut_after = 4, .stalls = true};
    EXPECT_NE(request.head.find("Range: bytes=4-"), std::string::npos);
    return ServerReply{.status = 206, .headers = "Content-Range: bytes 4-5/6\r\n", .body = "56"};
  });
  const auto slow = http_download(server.url() + "/file", "", folder_ / "file", 6, {}, {.bytes_per_s = 1024, .seconds = 1});
  ASSERT_FALSE(slow);
  EXPECT_EQ(slow.error().code, ErrorCode::unavailable);
  EXPECT_EQ(slow.error().message, server.url() +
                                      "/file: fewer than 1024 bytes a second came for 1 s; 4 of 6 bytes are there, "
                                      "and the next attempt continues after them");
  EXPECT_EQ(server.requests().size(), 1u) << "it is not tried again and again";
  stalls = false;
  ASSERT_TRUE(http_download(server.url() + "/file", "", folder_ / "file", 6, {}));
  EXPECT_EQ(read_file(folder_ / "file").value(), "123456");
}

TEST_F(HttpClient, a_download_writes_through_no_link) {
  HttpServer server([&](const ServerRequest&) { return ServerReply{.body = "123456"}; });
  std::filesystem::create_symlink(folder_ / "other", folder_ / "link");
  const auto refused = http_download(server.url() + "/file", "", folder_ / "link", 6, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            (folder_ / "link").string() + " is a link; downloads do not write through links: remove it");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));
}

TEST_F(HttpClient, a_download_that_is_refused_or_too_long_is_an_error) {
  HttpServer server([](const ServerRequest& request) {
    return ServerReply{.status = request.target == "/forbidden" ? 403 : 200, .body = "123456"};
  });
  EXPECT_EQ(http_download(server.url() + "/forbidden", "", folder_ / "file", 6, {}).error().message,
            server.url() + "/forbidden: HTTP status 403");
  EXPECT_EQ(read_file(folder_ / "file").value(), "");
  EXPECT_EQ(http_download(server.url() + "/file", "", folder_ / "file", 5, {}).error().message,
            server.url() + "/file: the file has more than the 5 bytes announced");
  EXPECT_LE(read_file(folder_ / "file").value().size(), 5u);
  EXPECT_EQ(http_download(server.url() + "/file", "", folder_ / "no" / "file", 6, {}).error().code, ErrorCode::io);
}

}  // namespace
}  // namespace baton
