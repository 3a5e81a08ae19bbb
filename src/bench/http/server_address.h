/// Where a server that is measured listens.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace baton {

/// The parts of a server's URL.
struct ServerAddress {
  std::string host;
  std::uint16_t port = 80;
  std::string path = {};  ///< "/v2" of "http://host/v2/"; empty if there is none

  std::string authority() const;  ///< "host:port"
  std::string url() const;        ///< "http://host:port/v2"
};

/// Reads "http://HOST[:PORT][/PATH]"; HOST may be an IPv6 address in brackets. Errors (invalid_request) name the URL.
Result<ServerAddress> parse_server_address(const std::string& url);

}  // namespace baton
