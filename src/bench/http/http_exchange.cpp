/// One slot, one request, one response.
#include "bench/http/http_exchange.h"

#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "bench/http/http_streams.h"

namespace baton {

Result<HttpExchange> get_http(const ServerAddress& address, const std::string& target, std::span<const std::string> headers,
                              double timeout_s) {
  using Clock = HttpStreams::Clock;
  BATON_TRY(HttpStreams streams, HttpStreams::create(1, headers));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  HttpExchange exchange;
  std::optional<std::string> error;
  streams.send(0, address.url() + target, "");
  while (!error && Clock::now() < deadline) {
    streams.wait(deadline, [&](const HttpStreams::News& news) {
      exchange.body += news.bytes;
      exchange.status = news.head.status;
      if (news.is_end) error = news.error;
    });
  }
  if (!error) error = fmt::format("no answer within {:g} s", timeout_s);
  if (!error->empty()) return fail(ErrorCode::unavailable, fmt::format("{}: {}", address.url(), *error));
  return exchange;
}

}  // namespace baton
