/// Many HTTP requests at once on one thread, whose answers are read as they arrive, over libcurl; for `baton demo` and the
/// benchmarks of running servers.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton {

/// The head of an answer, as far as it has come.
struct HttpHead {
  std::string status_line;  ///< "HTTP/1.1 200 OK"; empty: there is no answer yet
  int status = 0;
  std::string content_type;
  bool is_chunked = false;
};

/// Requests to servers in a fixed number of slots. A slot has one request at a time. Connections are kept for later requests
/// as far as the servers let them; a request that a server cut on a kept connection, before it sent anything, is sent again
/// on a new one. No proxy is used. Thread: one at a time.
class HttpStreams {
 public:
  using Clock = std::chrono::steady_clock;

  /// What happened in a slot: bytes of the answer's body, or its end. Valid until the call that reports it returns.
  struct News {
    std::size_t slot = 0;
    const HttpHead& head;
    std::string_view bytes;
    bool is_end = false;   ///< the slot is free
    std::string error;     ///< of an end: why the answer is not whole; empty: it is
    Clock::time_point at;  ///< when the wait ended that brought it
  };

  /// `headers`: lines that all requests have; a request with a body has the content type of JSON too. Errors:
  /// invalid_request (more connections than open files are allowed), io.
  static Result<HttpStreams> create(std::size_t n_slots, std::span<const std::string> headers);
  ~HttpStreams();
  HttpStreams(HttpStreams&&) noexcept;
  HttpStreams& operator=(HttpStreams&&) noexcept;

  std::size_t size() const;
  /// Sends a request in a free slot: a POST of `body`, or a GET if that is empty. The next wait begins with it.
  void send(std::size_t slot, const std::string& url, std::string body);
  /// Ends the request of a slot, and its connection. It reports nothing more.
  void cancel(std::size_t slot);
  /// Waits until something happens or until `until`, to about 0.1 ms, and reports what happened. `on_news` may cancel, not send.
  void wait(Clock::time_point until, const std::function<void(const News&)>& on_news);

 private:
  struct Impl;
  explicit HttpStreams(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

/// Extracts the data of server-sent events from a stream of bytes, however the stream is divided.
class ServerSentEvents {
 public:
  /// Calls on_data with each whole `data:` line's text.
  void push(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  std::string line_;
};

}  // namespace baton
