/// The grammar that the tools of a chat request demand of its answers.
#pragma once

#include "core/result.h"
#include "parsers/message_format.h"
#include "server/openai_request.h"

namespace baton {

/// Sets the request's grammar if `tool_choice` demands or restricts calls, or a tool that may be called is strict; it
/// takes the place of a `response_format`, which concerns only content. Errors (invalid_request): those of
/// MessageFormat::grammar, and a grammar of content beside tools that the model may call.
Result<void> demand_calls(const parsers::MessageFormat& format, ChatRequest& request);

}  // namespace baton
