/// The messages of a conversation: checked, and brought into the form that a chat template reads.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "text/template/template_traits.h"

namespace baton {

inline constexpr std::size_t kMaxCallsOfMessage = 1024;

/// A list of messages, whatever the template: objects with a `role` and a `content` that is a string or null, or absent
/// beside `tool_calls`; a content given in parts is joined by line feeds. `tool_calls` are complete: a type, a function
/// with a name and arguments (a text or an object). Deprecated forms (`function_call`, the role `function`) become
/// calls and results, a refusal becomes content, and a result gets the `name` of its call. `reasoning` and
/// `reasoning_content` are both set if one is. Other keys are kept. Errors (invalid_request) call the list `key` and
/// have the message's index.
Result<json::Value> parse_messages(const json::Value& value, std::string_view key);

/// Brings messages of parse_messages into the form that a template with these traits wants: arguments as text or as an
/// object, `content` beside calls empty, null or absent, short ids of calls, `developer` as `system`, calls as JSON behind
/// the content where the template does not show calls. Errors (invalid_request): results that the template does not show,
/// arguments that are no JSON object. They count the messages behind the first `n_before`.
Result<json::Value> shape_messages(json::Value messages, std::size_t n_before, const TemplateTraits& traits);

}  // namespace baton
