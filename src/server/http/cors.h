/// CORS: which web pages may call the server.
#pragma once

#include <string>
#include <vector>

#include "server/http/message.h"

namespace baton {

/// `--allowed-origins`, `--allowed-methods`, `--allowed-headers`, `--allow-credentials`; "*" is any.
struct CorsOptions {
  std::vector<std::string> origins = {"*"};
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool allows_credentials = false;
};

/// Whether the request is a browser's preflight request.
bool is_preflight(const HttpRequest& request);

/// The headers that allow the page that sent `request` to read the answer; none for other clients and for pages that
/// may not.
HttpHeaders cors_headers(const CorsOptions& options, const HttpRequest& request);

}  // namespace baton
