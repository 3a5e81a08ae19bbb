/// The dialect of the Anthropic API.
#pragma once

#include "server/dialects/dialect.h"
#include "server/dialects/messages/error.h"

namespace baton {

inline constexpr Dialect kMessages = {.path = "/v1/messages",
                                      .count_path = "/v1/messages/count_tokens",
                                      .ids = "msg_",
                                      .errors = {as_messages_error, messages_headers}};

}  // namespace baton
