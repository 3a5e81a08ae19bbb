/// Many HTTP requests at once whose answers are read as they come, over libcurl: what `baton demo` and load tests send.
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

/// What came of one: the status, or why there was none.
struct HttpOutcome {
  long status = 0;
  std::string error;  ///< empty if the answer came whole
};

/// Called with each piece of an answer's body, on the caller's thread.
using HttpPiece = std::function<void(std::size_t index, std::string_view bytes)>;

/// Sends all posts at once, each on a connection of its own, and returns when the last answer has ended or `timeout_s` is over.
std::vector<HttpOutcome> http_post_streams(std::span<const HttpPost> posts, double timeout_s, const HttpPiece& on_piece);

/// The data of server-sent events in a stream of bytes, whatever its cuts.
class ServerSentEvents {
 public:
  /// Calls on_data with each whole `data:` line's text.
  void push(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  std::string line_;
};

}  // namespace baton
