#include "bench/http/http_streams.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/http_server.h"

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
      const auto n = ::read(connection, bytes, sizeof(bytes));
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

HttpStreams streams_of(std::size_t n_slots, std::vector<std::string> headers = {}) {
  auto made = HttpStreams::create(n_slots, headers);
  EXPECT_TRUE(made);
  return std::move(*made);
}

/// What came of the request of a slot.
struct CannedAnswer {
  HttpHead head;
  std::string body;
  std::optional<std::string> error;  ///< of the end
};

/// Waits until all slots have ended.
std::vector<CannedAnswer> answers_of(HttpStreams& streams) {
  std::vector<CannedAnswer> answers(streams.size());
  const auto has_ended = [](const CannedAnswer& answer) { return answer.error.has_value(); };
  while (!std::ranges::all_of(answers, has_ended))
    streams.wait(HttpStreams::Clock::now() + std::chrono::seconds(1), [&](const HttpStreams::News& news) {
      CannedAnswer& answer = answers[news.slot];
      answer.head = news.head;
      answer.body += news.bytes;
      if (news.is_end) answer.error = news.error;
    });
  return answers;
}

TEST(HttpStreams, bring_each_slot_its_own_answer) {
  const test::HttpServer server([&](const test::ServerRequest& request) {
    return test::ServerReply{.status = 201, .headers = "CONTENT-TYPE:  text/plain; a=b \r\n", .body = request.target};
  });
  HttpStreams streams = streams_of(3, {"X-Key: 1"});
  streams.send(0, server.url() + "/0", "");
  streams.send(1, server.url() + "/1", "{}");
  streams.send(2, server.url() + "/2", "{}");
  const std::vector<CannedAnswer> answers = answers_of(streams);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i].error, "");
    EXPECT_EQ(answers[i].body, "/" + std::to_string(i));
    EXPECT_EQ(answers[i].head.status_line, "HTTP/1.1 201 Status");
    EXPECT_EQ(answers[i].head.status, 201);
    EXPECT_EQ(answers[i].head.content_type, "text/plain; a=b");
    EXPECT_FALSE(answers[i].head.is_chunked);
  }
  const std::vector<test::ServerRequest> requests = server.requests();
  EXPECT_EQ(requests.size(), 3U);
  for (const test::ServerRequest& request : requests) {
    EXPECT_EQ(request.method, request.target == "/0" ? "GET" : "POST");
    EXPECT_NE(request.head.find("X-Key: 1\r\n"), std::string::npos) << request.head;
    EXPECT_EQ(request.head.find("Expect"), std::string::npos) << request.head;
  }
}

TEST(HttpStreams, say_whether_an_answer_comes_in_chunks) {
  const EchoServer server(1);
  HttpStreams streams = streams_of(1);
  streams.send(0, server.url, "{}");
  EXPECT_TRUE(answers_of(streams).front().head.is_chunked);
}

TEST(HttpStreams, say_why_there_is_no_answer) {
  std::string gone;
  {
    const test::HttpServer server([](const test::ServerRequest&) { return test::ServerReply{}; });
    gone = server.url();
  }
  const test::HttpServer cutting([](const test::ServerRequest&) { return test::ServerReply{.body = "long", .cut_after = 2}; });
  HttpStreams streams = streams_of(3);
  streams.send(0, gone, "");
  streams.send(1, "http://no-such-host.invalid", "");
  streams.send(2, cutting.url(), "");
  const std::vector<CannedAnswer> answers = answers_of(streams);
  EXPECT_EQ(answers[0].error, "cannot connect: Connection refused");
  EXPECT_EQ(answers[1].error, "cannot connect: the host is unknown");
  EXPECT_EQ(answers[2].error, "the server closed the connection before the answer's end");
  EXPECT_EQ(answers[2].body, "lo");
}

TEST(HttpStreams, report_nothing_of_a_cancelled_request) {
  const test::HttpServer server([](const test::ServerRequest& request) {
    return test::ServerReply{.headers = "X-Padding: 1\r\n", .body = std::string(1 << 20, request.target.back())};
  });
  HttpStreams streams = streams_of(3);
  for (const char* const slot : {"0", "1", "2"})
    streams.send(static_cast<std::size_t>(*slot - '0'), server.url() + "/" + slot, "");
  streams.cancel(2);
  std::vector<std::size_t> n_news(3);
  bool has_ended = false;
  while (!has_ended)
    streams.wait(HttpStreams::Clock::now() + std::chrono::seconds(1), [&](const HttpStreams::News& news) {
      ++n_news[news.slot];
      if (news.slot == 0) streams.cancel(0);  // inside its own news
      if (news.slot == 1 && news.is_end) has_ended = true;
    });
  EXPECT_EQ(n_news[0], 1U);
  EXPECT_GT(n_news[1], 1U);
  EXPECT_EQ(n_news[2], 0U);
  for (const std::size_t slot : {0U, 2U}) streams.send(slot, server.url() + "/9", "");  // the slots are free
  streams.send(1, server.url() + "/9", "");
  for (const CannedAnswer& answer : answers_of(streams)) EXPECT_EQ(answer.body, std::string(1 << 20, '9'));
}

TEST(HttpStreams, wait_until_a_time_and_not_earlier) {
  HttpStreams streams = streams_of(0);
  for (const int us : {300, 2500, 0}) {
    const auto until = HttpStreams::Clock::now() + std::chrono::microseconds(us);
    bool has_news = false;
    streams.wait(until, [&](const HttpStreams::News&) { has_news = true; });
    EXPECT_GE(HttpStreams::Clock::now(), until);
    EXPECT_FALSE(has_news);
  }
}

TEST(HttpStreams, bring_many_answers_at_once) {
  constexpr std::size_t kPosts = 20;
  const EchoServer server(kPosts);
  HttpStreams streams = streams_of(kPosts);
  for (std::size_t i = 0; i < kPosts; ++i) streams.send(i, server.url, "{\"number\": " + std::to_string(i) + "}");
  const std::vector<CannedAnswer> answers = answers_of(streams);
  for (std::size_t i = 0; i < kPosts; ++i) {
    EXPECT_EQ(answers[i].head.status, 200) << *answers[i].error;
    EXPECT_EQ(answers[i].body, "{\"number\": " + std::to_string(i) + "}");
  }
}

}  // namespace
}  // namespace baton
