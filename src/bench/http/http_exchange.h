/// Single requests to the server that a benchmark measures: its models, its metrics, whether it is ready.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/http/connections.h"
#include "core/result.h"

namespace baton {

/// The bytes of a request to `target`, below the path of the address. `headers` are lines without their ends; Host and,
/// with a body, Content-Length are added.
std::string http_request(const ServerAddress& address, std::string_view method, std::string_view target,
                         std::span<const std::string> headers, std::string_view body);
inline std::string http_request(const ServerAddress& address, std::string_view method, std::string_view target,
                                std::initializer_list<std::string> headers, std::string_view body) {
  return http_request(address, method, target, std::span<const std::string>(headers.begin(), headers.size()), body);
}

struct HttpExchange {
  int status = 0;
  std::string body;
};

/// Sends a request on a connection of its own, without a proxy, and waits for the whole response. A response of any
/// status is a result. Errors (unavailable, not_found) say why there was none within `timeout_s` seconds.
Result<HttpExchange> exchange_http(const ServerAddress& address, const std::string& request, double timeout_s);

}  // namespace baton
