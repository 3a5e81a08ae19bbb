/// HTTP for downloading models, over libcurl, which reads proxies and certificates from its environment variables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "core/result.h"

namespace baton {

struct HttpReply {
  long status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
};

/// Called during a download with the bytes received and the total (0 while unknown), on the caller's thread.
using DownloadProgress = std::function<void(std::uint64_t received, std::uint64_t total)>;

/// A whole reply of at most 64 MiB, redirects followed. `token`, if any, is sent as bearer to the first host only. A
/// reply of any status is a result; errors (unavailable) say why there was none.
Result<HttpReply> http_get(const std::string& url, const std::string& token);
/// Status and headers. Redirects within a server are followed, and to others too unless `is_enough` of that reply. The token goes
/// to the first server only (scheme, host and port).
Result<HttpReply> http_head(const std::string& url, const std::string& token,
                            const std::function<bool(const HttpReply&)>& is_enough);

/// The least speed of a download: fewer than `bytes_per_s` for `seconds` end it.
struct SpeedFloor {
  int bytes_per_s = 1024;
  int seconds = 60;
};

/// Downloads `url` to the file `path`, which must not be a link. Continues where an earlier attempt ended, also after a broken
/// connection. In the end the file has `size_bytes` bytes; what came before an error stays, for the next attempt. Two processes that
/// download to the same path wait for each other. Errors: unavailable (network, status, too slow), invalid_data (another size), io.
Result<void> http_download(const std::string& url, const std::string& token, const std::filesystem::path& path,
                           std::uint64_t size_bytes, const DownloadProgress& progress, const SpeedFloor& floor = {});

}  // namespace baton
