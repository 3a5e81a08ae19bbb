#include "io/http_streams.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ServerSentEvents, finds_data_lines_whatever_the_cuts) {
  const std::string stream = ": note\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:[DONE]\n\ndata: un";
  for (std::size_t cut = 1; cut <= stream.size(); ++cut) {
    ServerSentEvents events;
    std::vector<std::string> got;
    for (std::size_t i = 0; i < stream.size(); i += cut)
      events.push(std::string_view(stream).substr(i, cut), [&](std::string_view data) { got.emplace_back(data); });
    EXPECT_EQ(got, (std::vector<std::string>{"{\"a\":1}", "[DONE]"})) << "pieces of " << cut;
  }
}

/// Answers `n` connections with the body of their request, chunked.
class EchoServer {
 public:
  explicit EchoServer(int n) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
    thread_ = std::thread([this, n] {
      for (int i = 0; i < n; ++i) answer(accept(listener_, nullptr, nullptr));
    });
  }
  ~EchoServer() {
    thread_.join();
    close(listener_);
  }
  std::string url;

 private:
  static void answer(int connection) {
    std::string text;
    char bytes[4096];
    while (text.find("\r\n\r\n") == std::string::npos || !text.ends_with("}")) {
      const auto n = read(connection, bytes, sizeof(bytes));
      if (n <= 0) break;
      text.append(bytes, static_cast<std::size_t>(n));
    }
    const std::string body = text.substr(text.find("\r\n\r\n") + 4);
    std::string reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const char byte : body) reply += std::string("1\r\n") + byte + "\r\n";
    reply += "0\r\n\r\n";
    EXPECT_EQ(write(connection, reply.data(), reply.size()), static_cast<ssize_t>(reply.size()));
    close(connection);
  }
  int listener_;
  std::thread thread_;
};

TEST(HttpPostStreams, brings_every_answer_to_its_post) {
  constexpr std::size_t kPosts = 20;
  const EchoServer server(kPosts);
  std::vector<HttpPost> posts;
  for (std::size_t i = 0; i < kPosts; ++i) posts.push_back({server.url, "{\"number\": " + std::to_string(i) + "}"});
  std::vector<std::string> answers(kPosts);
  const auto outcomes =
      http_post_streams(posts, 20, [&](std::size_t index, std::string_view bytes) { answers[index] += bytes; });
  for (std::size_t i = 0; i < kPosts; ++i) {
    EXPECT_EQ(outcomes[i].status, 200) << outcomes[i].error;
    EXPECT_EQ(answers[i], posts[i].body);
  }
}

TEST(HttpPostStreams, says_why_there_was_no_answer) {
  const HttpPost post{"http://127.0.0.1:1/", "{}"};
  const auto outcomes = http_post_streams(std::span(&post, 1), 5, [](std::size_t, std::string_view) {});
  EXPECT_EQ(outcomes[0].status, 0);
  EXPECT_FALSE(outcomes[0].error.empty());
}

}  // namespace
}  // namespace baton
