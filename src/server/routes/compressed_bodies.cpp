/// Requests whose bodies are compressed.
#include <memory>
#include <string>
#include <utility>

#include "io/content_coding.h"
#include "server/http/error_body.h"
#include "server/routes/routes.h"

namespace baton {

/// Queues the decoding of a compressed body, which then waits in turn as a text of its own size. False if there is no place for it.
bool Routes::queue_compressed(const std::shared_ptr<Call>& call) {
  constexpr std::size_t kUsualRatio = 8;
  return texts_.push(work_for(*call, kUsualRatio * call->request.body.size(), [this, call] {
    Result<void> decoded = parse_content_coding(call->request.header("content-encoding")).and_then([&](ContentCoding coding) {
      return decode_body(*call, coding);
    });
    if (decoded && !queue(call, call->request.body.size())) decoded = fail(ErrorCode::unavailable, std::string(kTooManyTexts));
    if (!decoded) context_.dispatcher.respond(call->exchange, error_response(decoded.error()));
  }));
}

/// Puts the text of a body into its place. Errors: those of decode_content.
Result<void> Routes::decode_body(Call& call, ContentCoding coding) const {
  if (coding == ContentCoding::identity) return {};
  HttpRequest& request = call.request;
  const auto n_sent = static_cast<std::int64_t>(request.body.size());
  const auto has_room = [&](std::size_t n) {
    const std::int64_t n_more = n_sent + static_cast<std::int64_t>(n) - request.body_share.size();
    return n_more <= 0 || request.body_share.grow(n_more);
  };
  BATON_TRY(request.body, decode_content(coding, request.body, "the request body",
                                         {options_.max_body_bytes, has_room, is_unwanted(call.exchange)}));
  if (request.body_share.size() > n_sent) request.body_share.shrink(n_sent);
  return {};
}

}  // namespace baton
