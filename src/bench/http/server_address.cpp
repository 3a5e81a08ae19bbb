/// Takes URLs apart.
#include "bench/http/server_address.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

namespace baton {

std::string ServerAddress::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string ServerAddress::url() const { return fmt::format("http://{}{}", authority(), path); }

Result<ServerAddress> parse_server_address(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&] {
    return fail(ErrorCode::invalid_request, fmt::format("the URL must be http://HOST:PORT, not '{}'", url));
  };
  if (!url.starts_with(kScheme)) return refuse();
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  ServerAddress address;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  address.path = rest.substr(slash);
  while (address.path.ends_with('/')) address.path.pop_back();
  rest = rest.substr(0, slash);
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  if (bracket == std::string_view::npos) return refuse();
  const std::size_t colon = rest.find(':', bracket);
  address.host = bracket > 0 ? rest.substr(1, bracket - 1) : rest.substr(0, colon);
  if (address.host.empty()) return refuse();
  if (colon == std::string_view::npos) return address;
  const std::string_view port = rest.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port == 0) return refuse();
  return address;
}

}  // namespace baton
