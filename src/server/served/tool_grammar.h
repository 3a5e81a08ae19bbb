/// The grammar that the tools of a chat request demand of its answers.
#pragma once

#include "core/result.h"
#include "server/request/generation.h"
#include "server/served/served_model.h"

namespace baton {

/// Sets the request's grammar if `tool_choice` demands or restricts calls, or a tool that may be called is strict, or
/// the request has a grammar already, such as a `response_format`. That one concerns only content: beside demanded calls it
/// has no effect, and where the model may call tools the answer is either calls or a text of it. Errors
/// (invalid_request): those of MessageFormat::grammar.
Result<void> demand_calls(const ServedModel& model, ChatRequest& request);

}  // namespace baton
