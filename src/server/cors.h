/// Which web pages may call the server.
#pragma once

#include <string>
#include <vector>

#include "server/http_message.h"

namespace baton {

/// `--allowed-origins`, `--allowed-methods`, `--allowed-headers`, `--allow-credentials`; "*" is any.
struct CorsOptions {
  std::vector<std::string> origins = {"*"};
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool allows_credentials = false;
};

/// Whether a browser asks beforehand if it may send a request.
bool is_preflight(const HttpRequest& request);

/// What the answer to `request` must carry so that the page that sent it may read it; nothing for other clients and pages that
/// may not.
HttpHeaders cors_headers(const CorsOptions& options, const HttpRequest& request);

}  // namespace baton
