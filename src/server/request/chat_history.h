/// The messages of a conversation: checked, and each in one form.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/json.h"

namespace baton {

inline constexpr std::size_t kMaxCallsOfMessage = 1024;

/// What stands in a conversation's history for what this model cannot read: "[image omitted: this model reads text only]".
std::string omitted_text(std::string_view what);

/// A list of messages, whatever the template: objects with a `role` and a `content` that is a string, a list of parts
/// {"type": "text", "text"} or null, or absent beside `tool_calls`. `tool_calls` are complete: a type, a function with a name
/// and arguments (a text or an object); calls of custom tools are calls with one argument (see custom_arguments). Deprecated forms
/// (`function_call`, the role `function`) become calls and results, a refusal becomes content, and a result gets the `name` of
/// its call. `reasoning`, `reasoning_content` and `thinking` are all set if one is. Other keys are kept. Errors (invalid_request) call the
/// list `key` and have the message's index: a wrong type, or an image, a sound or a file in a last message of the user. In front
/// of it omitted_text stands for them.
Result<json::Value> parse_messages(const json::Value& value, std::string_view key);

}  // namespace baton
