/// One connection, one request, one response.
#include "bench/http/http_exchange.h"

#include <chrono>

#include <fmt/format.h>

#include "bench/http/response_reader.h"

namespace baton {

std::string http_request(const ServerAddress& address, std::string_view method, std::string_view target,
                         std::span<const std::string> headers, std::string_view body) {
  std::string request = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n", method, address.path, target, address.authority());
  for (const std::string& line : headers) request += line + "\r\n";
  if (!body.empty()) request += fmt::format("Content-Length: {}\r\n", body.size());
  request += "\r\n";
  request += body;
  return request;
}

Result<HttpExchange> exchange_http(const ServerAddress& address, const std::string& request, double timeout_s) {
  using Clock = Connections::Clock;
  const auto no_answer = [&](const std::string& why) {
    return fail(ErrorCode::unavailable, fmt::format("http://{}{}: {}", address.authority(), address.path, why));
  };
  BATON_TRY(Connections connections, Connections::create(address, 1));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  ResponseReader response;
  std::string body;
  std::string end;
  connections.send(0, request);
  while (!response.is_done() && end.empty() && response.fault().empty()) {
    if (Clock::now() >= deadline) return no_answer(fmt::format("no answer within {:g} s", timeout_s));
    connections.wait(deadline, [&](const Connections::News& news) {
      end = news.end;
      response.push(news.bytes, [&](std::string_view piece) { body += piece; });
      if (news.is_closed && response.has_head()) response.close();
    });
  }
  if (!response.fault().empty()) return no_answer(response.fault());
  if (!response.is_done()) return no_answer(end);
  return HttpExchange{response.status(), std::move(body)};
}

}  // namespace baton
