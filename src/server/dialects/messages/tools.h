/// Tools of the Anthropic dialect as functions of a chat completion.
#pragma once

#include "core/result.h"
#include "io/json.h"
#include "server/dialects/messages/blocks.h"

namespace baton {

/// Reads `tools`. Tools with a type that the client runs (a shell, an editor, a memory) are functions with the schema that the type
/// stands for; tools that only a hosted server runs are left out. Errors (invalid_request) name the tool.
Result<void> read_message_tools(const json::Value& body, MessagesReading& reading);
/// Reads `tool_choice`.
Result<void> read_message_choice(const json::Value& body, json::Value& chat);

}  // namespace baton
