/// Bodies of requests and answers that are JSON, errors as clients of the OpenAI dialect expect them, and the form of
/// errors and whatever else a connection knows about its request besides HTTP.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/resumable.h"
#include "io/json.h"
#include "server/http/message.h"

namespace baton {

/// 400 for invalid_request, 404, 413, 501, 503; everything else is 500.
int http_status(ErrorCode code);

/// The first names of a list for a message: "a, b", "a, b, ... and 90 more", or "none".
std::string short_list(std::span<const std::string> names);

/// How errors begin that say that a prompt, or the answer after it, does not fit the context.
inline constexpr std::string_view kContextLengthSentence = "This model's maximum context length is ";

/// {"error": {"message", "type", "param", "code"}}; `param` is null when empty. `code` is the status, except that errors that begin
/// with kContextLengthSentence have "context_length_exceeded", by which clients know that they must shorten the conversation.
json::Value error_body(int status, std::string_view message, std::string_view param);
/// A 503 says with Retry-After that the same request may succeed later.
HttpResponse error_response(int status, std::string_view message, std::string_view param);
HttpResponse error_response(const Error& error);

/// The most values that a JSON text can have: its elements and members, and itself. Texts that are not JSON have any
/// number.
std::int64_t count_json_values(std::string_view text);

/// The object in a request's body, which has at most `max_values` values: as text they take a few bytes, in memory many.
/// Errors: too_large, invalid_request; unavailable once `is_cancelled` says that no client waits for it (empty: never).
Result<json::Value> parse_body(const HttpRequest& request, std::int64_t max_values,
                               const std::function<bool()>& is_cancelled = {});

/// 200 with `body`.
HttpResponse json_response(const json::Value& body);
/// The response for an error. Errors of the server are logged.
HttpResponse logged_error_response(const Error& error);

/// Writes an object of JSON. Large parts of answers are appended to the text; as Values they would take many times as
/// much memory. The text must outlive it.
class JsonObjectWriter {
 public:
  explicit JsonObjectWriter(std::string& out) : out_(out) { out_ += '{'; }
  /// After this the member's value is to be appended. The name needs no escapes.
  void key(std::string_view name);
  void add(std::string_view name, const json::Value& value);
  void end() { out_ += '}'; }

 private:
  std::string& out_;
  bool is_empty_ = true;
};

/// Appends the characters of a string of JSON, without its quotes, in steps of 16 KiB. `text` is UTF-8; both must outlive
/// the function.
Resumable write_json_characters(std::string_view text, std::string& out);
/// Appends a string of JSON, in steps of 16 KiB. `text` is UTF-8; both must outlive the function.
Resumable write_json_string(std::string_view text, std::string& out);

/// How errors are written for the clients of a dialect. A constant.
struct ErrorForm {
  /// An error response of this file in this form. It keeps its status, headers and message.
  HttpResponse (*rewrite)(HttpResponse error);
  /// The headers that every answer has, errors too.
  HttpHeaders (*headers)();
};

/// The form of error_body, which is the OpenAI API's. Paths of no dialect have it.
inline constexpr ErrorForm kOpenaiErrors = {[](HttpResponse error) { return error; }, [] { return HttpHeaders(); }};

/// An error in this form, with the headers of every answer.
inline HttpResponse refusal_in(const ErrorForm& form, int status, std::string_view message) {
  HttpResponse response = form.rewrite(error_response(status, message, {}));
  std::ranges::move(form.headers(), std::back_inserter(response.headers));
  return response;
}

/// What the server's owner finds out about a request from its header. The connection keeps it until the body is complete, and
/// hands it back with the request. The owner derives a type of its own.
struct Ticket {
  Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  virtual ~Ticket() = default;

  const ErrorForm* errors = &kOpenaiErrors;  ///< never null
  /// The request comes from the operator (health, metrics): it is answered although connections, files or memory
  /// are used up.
  bool is_health_check = false;
};

}  // namespace baton
