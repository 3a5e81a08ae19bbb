/// The Access-Control headers.
#include "server/http/cors.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

bool has_any(const std::vector<std::string>& list) { return std::ranges::find(list, "*") != list.end(); }

}  // namespace

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("origin").empty() &&
         !request.header("access-control-request-method").empty();
}

HttpHeaders cors_headers(const CorsOptions& options, const HttpRequest& request) {
  const std::string origin(request.header("origin"));
  const bool is_any = has_any(options.origins);
  if (origin.empty() || (!is_any && std::ranges::find(options.origins, origin) == options.origins.end())) return {};
  HttpHeaders headers;
  const bool is_named = !is_any || options.allows_credentials;
  headers.emplace_back("Access-Control-Allow-Origin", is_named ? origin : "*");
  if (is_named) headers.emplace_back("Vary", "Origin");
  if (options.allows_credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  if (!is_preflight(request)) {
    headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id");
    return headers;
  }
  headers.emplace_back("Access-Control-Allow-Methods", has_any(options.methods)
                                                           ? "GET, HEAD, POST, DELETE, OPTIONS"
                                                           : fmt::format("{}", fmt::join(options.methods, ", ")));
  const std::string wanted(request.header("access-control-request-headers"));
  if (has_any(options.headers) && !wanted.empty()) headers.emplace_back("Access-Control-Allow-Headers", wanted);
  if (!has_any(options.headers))
    headers.emplace_back("Access-Control-Allow-Headers", fmt::format("{}", fmt::join(options.headers, ", ")));
  headers.emplace_back("Access-Control-Max-Age", "600");
  return headers;
}

}  // namespace baton
