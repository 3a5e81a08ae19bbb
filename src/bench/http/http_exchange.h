/// Single requests to the server that a benchmark measures: its models, its metrics, whether it is ready.
#pragma once

#include <span>
#include <string>

#include "bench/http/server_address.h"
#include "core/result.h"

namespace baton {

struct HttpExchange {
  int status = 0;
  std::string body;
};

/// GETs `target`, below the path of the address, with these lines of headers, on a connection of its own. A response of any
/// status is a result. Errors (unavailable) say why there was none within `timeout_s` seconds.
Result<HttpExchange> get_http(const ServerAddress& address, const std::string& target, std::span<const std::string> headers,
                              double timeout_s);

}  // namespace baton
