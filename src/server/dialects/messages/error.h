/// Errors as clients of the Anthropic dialect expect them.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "server/http/message.h"
#include "server/prompt/context_excess.h"

namespace baton {

/// {"type": "error", "error": {"type", "message"}}
json::Value messages_error_body(int status, std::string_view message);
HttpResponse messages_error_response(int status, std::string_view message);

/// The two sentences by which clients of this API know that they must shorten the conversation.
Error messages_excess(const ContextExcess& excess);

/// An error response of the OpenAI dialect in the form of this one: its status, its headers, and its message.
HttpResponse as_messages_error(HttpResponse response);

/// The header that every answer of this dialect has.
HttpHeaders messages_headers();

}  // namespace baton
