/// Messages in the form that a chat template takes.
#pragma once

#include "io/json.h"
#include "text/template/template_traits.h"

namespace baton {

/// Brings messages of parse_messages into the form that a template with these traits takes. No text of a message is
/// lost, and nothing is refused for what a model has written.
///
/// Roles: `developer` is `system` where it is unknown. Messages of the system that the template would not show are
/// joined where they stand in front, or become text of the user's message after them, or else of the message before
/// them. Results that the template does not show become text of the user. Parts: lists of texts stay where the template
/// takes them for the role; their texts are joined by line feeds elsewhere. Calls: arguments as text or as an object,
/// `content` beside calls empty, null or absent, short ids, and calls as JSON after the content where the template does
/// not show them. Arguments that are not an object are the text as it was written where the template takes that, or
/// else an object that holds them: {"arguments": ...}. Where the template shows one call of a message only, each call is a message with
/// its results after it; where it does not take content and reasoning beside calls, the content ends the reasoning.
json::Value shape_messages(json::Value messages, const TemplateTraits& traits);

/// Definitions of tools, with empty descriptions where the template needs some and there are none.
json::Value shape_tools(json::Value tools, const TemplateTraits& traits);

}  // namespace baton
