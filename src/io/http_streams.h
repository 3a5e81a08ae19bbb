/// Many HTTP requests at once, whose answers are read as they arrive, over libcurl; for `baton demo` and load tests.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton {

/// A POST of JSON.
struct HttpPost {
  std::string url;
  std::string body;
};

/// The result of one request: its status, or why there was none.
struct HttpOutcome {
  long status = 0;
  std::string error;  ///< empty if the answer is complete
};

/// Called with each piece of an answer's body, on the caller's thread.
using HttpPiece = std::function<void(std::size_t index, std::string_view bytes)>;

/// Sends all posts at once, each on a connection of its own, and returns when the last answer has ended or `timeout_s`
/// is over.
std::vector<HttpOutcome> http_post_streams(std::span<const HttpPost> posts, double timeout_s, const HttpPiece& on_piece);

/// Extracts the data of server-sent events from a stream of bytes, however the stream is divided.
class ServerSentEvents {
 public:
  /// Calls on_data with each whole `data:` line's text.
  void push(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  std::string line_;
};

}  // namespace baton
