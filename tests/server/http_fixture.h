/// An HTTP server on a free loopback port, with requests that the test answers itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/http/server.h"
#include "server/raw_client.h"

namespace baton {

/// A dialect that writes the error of the OpenAI API between brackets.
inline constexpr ErrorForm kOtherErrors = {[](HttpResponse error) {
                                             error.body = "[" + error.body + "]";
                                             return error;
                                           },
                                           [] {
                                             return HttpHeaders{{"other", "yes"}};
                                           }};

/// Requests for "/echo" and "/vital" are answered at once with their method and body, those for "/refused" when their header is there;
/// all others wait for the test's answer. Errors of paths below "/other/" are written by kOtherErrors. One for "/hold" holds up the I/O thread until `let_go`.
class HttpFixture {
 public:
  explicit HttpFixture(const HttpLimits& limits = {}, HttpAddress address = {.host = "127.0.0.1", .port = 0}) {
    auto bound = HttpServer::bind(address, limits);
    EXPECT_TRUE(bound) << (bound ? "" : bound.error().message);
    server = std::move(*bound);
    HttpCallbacks callbacks;
    callbacks.on_request = [this](ExchangeId id, HttpRequest request, std::shared_ptr<Ticket> ticket) {
      EXPECT_EQ(static_cast<const PathTicket&>(*ticket).path, request.path) << "a request comes with its own ticket";
      on_request(id, std::move(request));
    };
    callbacks.errors_of = [](std::string_view path) -> const ErrorForm& {
      return path.starts_with("/other/") ? kOtherErrors : kOpenaiErrors;
    };
    callbacks.look_up = [this](const HttpRequest& head) {
      auto ticket = std::make_shared<PathTicket>();
      ticket->path = head.path;
      if (head.path.starts_with("/other/")) ticket->errors = &kOtherErrors;
      ticket->is_health_check = head.path == "/vital";
      ++n_look_ups;
      return ticket;
    };
    callbacks.check_header = [this](const HttpRequest& head, Ticket& ticket) {
      EXPECT_EQ(static_cast<const PathTicket&>(ticket).path, head.path);
      ++n_checks;
      return head.path == "/refused" ? std::optional(HttpResponse{401, {}, "no"}) : std::nullopt;
    };
    callbacks.on_gone = [this](ExchangeId id) { on_gone(id); };
    const auto started = server->start(std::move(callbacks));
    EXPECT_TRUE(started);
  }
  ~HttpFixture() { server->stop(0); }

  std::pair<ExchangeId, HttpRequest> next_request() { return next(requests_); }
  ExchangeId next_gone() { return next(gone_); }
  void let_go() {
    const std::scoped_lock lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
  }
  std::size_t n_requests() {
    const std::scoped_lock lock(mutex_);
    return requests_.size();
  }
  void answer(ExchangeId id, std::string body) {
    server->deliver({id, HttpOutput::Kind::whole, {200, {}, std::move(body)}, {}});
  }
  void begin_stream(ExchangeId id) {
    server->deliver({id, HttpOutput::Kind::head, {200, {{"Content-Type", "text/event-stream"}}, {}}, {}});
  }
  void send_piece(ExchangeId id, std::string bytes) { server->deliver({id, HttpOutput::Kind::piece, {}, std::move(bytes)}); }
  void end_stream(ExchangeId id) { server->deliver({id, HttpOutput::Kind::end, {}, {}}); }

  std::unique_ptr<HttpServer> server;
  std::atomic<int> n_look_ups = 0;
  std::atomic<int> n_checks = 0;

 private:
  struct PathTicket : Ticket {
    std::string path;
  };

  void on_request(ExchangeId id, HttpRequest request) {
    if (request.path == "/echo" || request.path == "/vital") return answer(id, request.method + " " + request.body);
    std::unique_lock lock(mutex_);
    is_held_ = request.path == "/hold";
    requests_.emplace_back(id, std::move(request));
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_held_; });
  }
  void on_gone(ExchangeId id) {
    const std::scoped_lock lock(mutex_);
    gone_.push_back(id);
    changed_.notify_all();
  }
  template <class T>
  T next(std::deque<T>& queue) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue.empty(); });  // if nothing happens, ctest ends the test
    T front = std::move(queue.front());
    queue.pop_front();
    return front;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false;
  std::deque<std::pair<ExchangeId, HttpRequest>> requests_;
  std::deque<ExchangeId> gone_;
};

}  // namespace baton
