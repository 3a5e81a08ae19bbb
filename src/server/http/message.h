/// HTTP requests and responses as values, and the ids of exchanges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "server/limits/budget.h"

namespace baton {

/// The id of one request and its answer on one connection; never reused.
using ExchangeId = Id<struct ExchangeKind, std::int64_t>;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   ///< "GET"
  std::string path;     ///< without the query, as sent
  std::string query;    ///< the part after "?"
  HttpHeaders headers;  ///< in the order sent
  std::string body;
  BudgetShare header_share;  ///< what the header takes from the budget of headers
  BudgetShare body_share;    ///< what the body takes from the budget of bodies
  bool is_http_1_0 = false;
  bool keep_alive = true;

  /// The first header with this name, ignoring case; empty if there is none. `name` is in lower case.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  ///< besides Content-Length, Transfer-Encoding and Connection, which the server adds
  std::string body;
};

/// A part of an answer. An exchange gets either one `whole`, or one `head` (the response's body is ignored), any
/// number of `piece`s and one `end`.
struct HttpOutput {
  enum class Kind { whole, head, piece, end };
  ExchangeId exchange;
  Kind kind = Kind::whole;
  HttpResponse response;       ///< of whole and head
  std::string bytes;           ///< of piece
  bool asks_for_more = false;  ///< of piece: HttpCallbacks::on_writable is to say that the client has taken most of it
};

/// Limits of size and time of a connection.
struct HttpLimits {
  std::size_t max_header_bytes = 64 * 1024;
  std::size_t max_header_count = 256;
  std::size_t max_body_bytes = 32 * 1024 * 1024;
  std::size_t max_pipelined_bytes = 64 * 1024;  ///< read ahead while an answer is being sent
  std::size_t max_unsent_bytes =
      4 * 1024 * 1024;  ///< of a stream whose client does not read; with more the connection is closed
  std::size_t max_connections = 8192;
  std::size_t max_connections_per_address = 0;  ///< 0: no limit
  std::int64_t fresh_grace_ms = 250;            ///< in which a new connection is not closed for another one
  BudgetLimits budgets = {};                    ///< of all connections together
  std::int64_t header_timeout_ms =
      20'000;  ///< from a request's first byte to its header's end; the first: from its connection's
  std::int64_t reserved_timeout_ms = 2'000;  ///< the same on a connection for which there is no room
  std::int64_t body_timeout_ms = 120'000;    ///< from there to the body's end
  std::int64_t idle_timeout_ms = 75'000;     ///< between two requests
  std::int64_t write_timeout_ms = 30'000;    ///< without the client accepting a byte
  // After the last answer of a connection the rest of its request is read and dropped, so that the client sees the
  // answer: closing before would reset the connection.
  std::int64_t linger_timeout_ms = 2'000;  ///< without the client sending a byte
  std::int64_t max_linger_ms = 10'000;     ///< in all
  std::size_t max_linger_bytes = 256 * 1024 * 1024;
};

/// Whether a text of ASCII is `lower_case` once it is in lower case.
bool equals_ignoring_case(std::string_view text, std::string_view lower_case);
/// Whether a Content-Type, which may have parameters, is `type`, which is in lower case.
bool is_media_type(std::string_view content_type, std::string_view type);
/// "demo%3Ashop" -> "demo:shop"; everything else is unchanged.
std::string percent_decoded(std::string_view text);

/// "Not Found" of 404.
std::string_view reason_phrase(int status);

/// The status line, the headers and the empty line.
std::string serialize_head(const HttpResponse& response, const HttpHeaders& framing);

}  // namespace baton
