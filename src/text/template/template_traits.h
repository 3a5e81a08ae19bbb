/// What a chat template makes of roles, tools, calls and parts, found by rendering small conversations.
#pragma once

#include <map>
#include <string>

#include "text/template/chat_template.h"

namespace baton {

/// Templates differ in how they want messages; a template says so only by what it renders. The values without a probe
/// are those of a template that knows nothing but texts.
struct TemplateTraits {
  bool shows_tools = false;             ///< `tools`
  bool shows_calls = false;             ///< `tool_calls` of an assistant's message
  bool shows_several_calls = false;     ///< all of them, not the first alone
  bool shows_results = false;           ///< messages of the role `tool`
  bool takes_text_arguments = false;    ///< arguments of a call as JSON text are written as they are
  bool takes_object_arguments = false;  ///< arguments of a call as an object are written as JSON or in the model's format
  bool takes_broken_arguments = false;  ///< arguments as text may be no JSON
  bool takes_empty_content = false;     ///< `content` of a message with calls may be an empty text
  bool takes_null_content = false;      ///< `content` of a message with calls may be null
  bool takes_absent_content = false;    ///< such a message may lack `content`
  bool takes_thoughtful_calls = false;  ///< such a message may have content and reasoning
  bool takes_bare_tools = false;        ///< `tools` need no description
  bool has_short_ids = false;           ///< ids of calls must have nine letters and digits
  bool knows_developer = false;         ///< the role `developer` is more than any other name
  // Where messages of the role `system` (and of `developer`, if it is known) are shown, and nothing else is lost by them.
  bool shows_system = false;        ///< one in front
  bool shows_two_systems = false;   ///< two in front
  bool shows_later_system = false;  ///< one after a user's message, and one after an answer
  bool shows_last_system = false;   ///< one at the end
  // Whose `content` may be a list of several texts.
  bool takes_system_parts = false;
  bool takes_user_parts = false;
  bool takes_assistant_parts = false;
  bool takes_tool_parts = false;
};

/// Renders about forty conversations of a few words. Thread: any.
TemplateTraits probe_template(const ChatTemplate& chat_template,
                              const std::map<std::string, std::string, std::less<>>& role_tokens);

}  // namespace baton
