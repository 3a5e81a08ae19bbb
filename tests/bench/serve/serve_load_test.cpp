/// Loads on a whole server in this process, and on servers that fail (bench/serve/serve_load.h).
#include "bench/serve/serve_load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/server_fixture.h"
#include "support/http_server.h"

namespace baton {
namespace {

/// `n` requests of different prompts of 12 tokens, with answers of 5.
Workload some_requests(std::size_t n) {
  Workload workload;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<TokenId> prompt(12, static_cast<TokenId>('a'));
    prompt[0] = static_cast<TokenId>('a' + i % 26);
    prompt[1] = static_cast<TokenId>('a' + i / 26);
    workload.requests.push_back({.prompt = std::move(prompt), .output_len = 5});
  }
  return workload;
}

ServeLoad load_on(std::uint16_t port, const Workload& workload) {
  ServeLoad load;
  load.format.address = {"127.0.0.1", port, ""};
  load.format.model = "demo";
  load.workload = &workload;
  load.arrivals_s.assign(workload.requests.size(), 0);
  return load;
}

ServeLoadResult run(const ServeLoad& load) {
  auto result = run_serve_load(load, [](std::int64_t) {});
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? std::move(*result) : ServeLoadResult();
}

std::size_t n_complete(const ServeLoadResult& result) {
  return static_cast<std::size_t>(
      std::ranges::count_if(result.requests, [](const ServedRequest& request) { return request.times.is_complete; }));
}

TEST(ServeLoad, answers_many_requests_at_once) {
  const ServerFixture server;
  const Workload workload = some_requests(60);
  const ServeLoadResult result = run(load_on(server.server->port(), workload));
  EXPECT_EQ(n_complete(result), 60U);
  for (const ServedRequest& request : result.requests) {
    EXPECT_EQ(request.error, "");
    EXPECT_TRUE(request.has_usage);
    EXPECT_EQ(request.times.prompt_len, 12);
    EXPECT_EQ(request.times.output_len, 5);
    EXPECT_GT(request.times.ttft, 0);
    EXPECT_GE(request.times.e2e, request.times.ttft);
    EXPECT_LE(request.times.sent + request.times.e2e, result.seconds);
    EXPECT_GE(request.lag_s, 0);
  }
}

TEST(ServeLoad, has_no_more_requests_under_way_than_allowed) {
  const ServerFixture server;
  const Workload workload = some_requests(9);
  ServeLoad load = load_on(server.server->port(), workload);
  load.max_concurrency = 2;
  const ServeLoadResult result = run(load);
  ASSERT_EQ(n_complete(result), 9U);
  for (std::size_t i = 2; i < 9; ++i) {
    const auto& requests = result.requests;
    const auto n_running = std::ranges::count_if(requests, [&](const ServedRequest& other) {
      return other.times.sent < requests[i].times.sent && other.times.sent + other.times.e2e > requests[i].times.sent;
    });
    EXPECT_LE(n_running, 1) << i;
  }
}

TEST(ServeLoad, sends_when_requests_are_due) {
  const ServerFixture server;
  const Workload workload = some_requests(5);
  ServeLoad load = load_on(server.server->port(), workload);
  load.arrivals_s = {0.12, 0.04, 0.08, 0, 0.16};
  const ServeLoadResult result = run(load);
  ASSERT_EQ(n_complete(result), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_GE(result.requests[i].times.sent, load.arrivals_s[i]);
    EXPECT_NEAR(result.requests[i].times.sent - load.arrivals_s[i], result.requests[i].lag_s, 1e-9);
  }
}

TEST(ServeLoad, sends_nothing_after_the_time_limit) {
  const ServerFixture server;
  const Workload workload = some_requests(4);
  ServeLoad load = load_on(server.server->port(), workload);
  load.arrivals_s = {0, 0.01, 0.5, 3600};
  load.time_limit_s = 0.3;
  const ServeLoadResult result = run(load);
  EXPECT_EQ(n_complete(result), 2U);
  EXPECT_FALSE(result.requests[2].is_sent);
  EXPECT_FALSE(result.requests[3].is_sent);
  EXPECT_EQ(result.requests[3].error, "");
}

TEST(ServeLoad, sends_later_turns_after_the_answers_before) {
  const ServerFixture server;
  Workload workload = some_requests(1);
  workload.requests.push_back({.prompt = {'b', 'b'}, .output_len = 4, .follows = 0});
  workload.requests.push_back({.prompt = {'c'}, .output_len = 3, .follows = 1});
  ServeLoad load = load_on(server.server->port(), workload);
  load.format.wants_ids = true;
  const ServeLoadResult result = run(load);
  ASSERT_EQ(n_complete(result), 3U);
  EXPECT_EQ(result.requests[1].times.prompt_len, 12 + 5 + 2);
  EXPECT_EQ(result.requests[2].times.prompt_len, 12 + 5 + 2 + 4 + 1);
  EXPECT_GE(result.requests[1].times.sent, result.requests[0].times.sent + result.requests[0].times.e2e);
}

TEST(ServeLoad, talks_to_chat_servers) {
  const ServerFixture server;
  const Tokenizer tokenizer = byte_tokenizer();
  const Workload workload = some_requests(3);
  ServeLoad load = load_on(server.server->port(), workload);
  load.format.endpoint = "/v1/chat/completions";
  load.format.is_chat = true;
  load.format.tokenizer = &tokenizer;
  const ServeLoadResult result = run(load);
  EXPECT_EQ(n_complete(result), 3U);
  EXPECT_GT(result.requests[0].times.prompt_len, 12);  // the template's tokens, as the server counts them
}

/// A server that answers the first `n_answers` requests of each connection, and closes it when the next one comes.
class ShortPatience {
 public:
  explicit ShortPatience(int n_answers) : n_answers_(n_answers), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ShortPatience() {
    ::shutdown(socket_, SHUT_RDWR);  // ends a waiting accept
    thread_.join();
    ::close(socket_);
  }
  ShortPatience(const ShortPatience&) = delete;
  ShortPatience& operator=(const ShortPatience&) = delete;

  std::uint16_t port() const { return port_; }
  int n_connections() const { return n_connections_; }

 private:
  void serve() {
    const std::string body = "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"length\"}]}\n\n";
    const std::string answer =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
        body;
    for (int client; (client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; ::close(client)) {
      ++n_connections_;
      char request[4096];  // the requests of these tests are short and come in one piece
      for (int i = 0; ::recv(client, request, sizeof(request), 0) > 0 && i < n_answers_; ++i)
        ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  const int n_answers_;
  const int socket_;
  std::uint16_t port_ = 0;
  std::atomic<int> n_connections_ = 0;
  std::thread thread_;
};

TEST(ServeLoad, sends_again_what_a_server_cut_on_a_connection_that_it_had_kept) {
  const Workload workload = some_requests(5);
  const ShortPatience server(2);
  ServeLoad load = load_on(server.port(), workload);
  load.max_concurrency = 1;
  EXPECT_EQ(n_complete(run(load)), 5U);
  EXPECT_EQ(server.n_connections(), 3);
}

TEST(ServeLoad, does_not_send_again_what_a_server_cut_on_a_new_connection) {
  const Workload workload = some_requests(2);
  const ShortPatience server(0);
  ServeLoad load = load_on(server.port(), workload);
  load.max_concurrency = 1;
  for (const ServedRequest& request : run(load).requests)
    EXPECT_EQ(request.error, "the server closed the connection before the answer's end");
  EXPECT_EQ(server.n_connections(), 2);
}

TEST(ServeLoad, ends_requests_that_take_too_long) {
  std::promise<void> has_ended;
  const std::shared_future<void> end = has_ended.get_future().share();
  const test::HttpServer server([end](const test::ServerRequest&) {
    end.wait();
    return test::ServerReply{};
  });
  const Workload workload = some_requests(1);
  ServeLoad load = load_on(parse_server_address(server.url())->port, workload);
  load.timeout_s = 0.2;
  EXPECT_EQ(run(load).requests[0].error, "no whole answer within 0.2 s");
  has_ended.set_value();
}

/// The errors of two requests, one after another, to a server that answers with `reply`.
std::vector<std::string> errors_of(const test::ServerReply& reply) {
  const test::HttpServer server([&](const test::ServerRequest&) { return reply; });
  Workload workload = some_requests(1);
  workload.requests.push_back({.prompt = {'b'}, .output_len = 4, .follows = 0});
  ServeLoad load = load_on(parse_server_address(server.url())->port, workload);
  const ServeLoadResult result = run(load);
  EXPECT_EQ(n_complete(result), 0U);
  EXPECT_TRUE(result.requests[0].is_sent);
  EXPECT_FALSE(result.requests[1].is_sent);
  return {result.requests[0].error, result.requests[1].error};
}

TEST(ServeLoad, counts_what_servers_fail_with) {
  const std::string stream = "Content-Type: text/event-stream\r\n";
  const std::string half = "data: {\"choices\":[{\"text\":\"x\"}]}\n\n";
  EXPECT_EQ(
      errors_of({.status = 400, .body = R"({"error":{"message":"too long"}})"}),
      (std::vector<std::string>{"HTTP/1.1 400 Status: too long", "the previous turn failed: HTTP/1.1 400 Status: too long"}));
  EXPECT_EQ(errors_of({.status = 500, .body = "oops"}).front(), "HTTP/1.1 500 Status: oops");
  EXPECT_EQ(errors_of({.body = R"({"choices":[{"text":"x"}]})"}).front(), R"(HTTP/1.1 200 Status: {"choices":[{"text":"x"}]})");
  EXPECT_EQ(errors_of({.headers = stream, .body = half}).front(), "the stream ended without [DONE] or a finish reason");
  EXPECT_EQ(errors_of({.headers = stream, .body = half + half, .cut_after = half.size()}).front(),
            "the server closed the connection before the answer's end");
}

TEST(ServeLoad, of_a_server_that_is_gone_fails_every_request) {
  std::uint16_t port = 0;
  {
    const ServerFixture server;
    port = server.server->port();
  }
  const Workload workload = some_requests(3);
  const ServeLoadResult result = run(load_on(port, workload));
  for (const ServedRequest& request : result.requests) EXPECT_EQ(request.error, "cannot connect: Connection refused");
}

TEST(ServeLoad, counts_tokens_by_chunks_where_the_server_does_not) {
  const test::HttpServer server([&](const test::ServerRequest&) {
    return test::ServerReply{.headers = "Content-Type: text/event-stream\r\n",
                             .body =
                                 "data: {\"choices\":[{\"text\":\"x\"}]}\n\n"
                                 "data: {\"choices\":[{\"text\":\"y\",\"finish_reason\":\"stop\"}]}\n\n"};
  });
  const Workload workload = some_requests(1);
  const ServeLoadResult result = run(load_on(parse_server_address(server.url())->port, workload));
  ASSERT_EQ(n_complete(result), 1U);
  EXPECT_FALSE(result.requests[0].has_usage);
  EXPECT_EQ(result.requests[0].times.output_len, 2);
  EXPECT_EQ(result.requests[0].times.gaps.size(), 1U);
}

}  // namespace
}  // namespace baton
