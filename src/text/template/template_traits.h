/// What a chat template makes of tools and their calls, found by rendering small conversations.
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
  bool shows_results = false;           ///< messages of the role `tool`
  bool takes_text_arguments = false;    ///< arguments of a call as JSON text are written as they are
  bool takes_object_arguments = false;  ///< arguments of a call as an object are written as JSON or in the model's format
  bool takes_empty_content = false;     ///< `content` of a message with calls may be an empty text
  bool takes_null_content = false;      ///< `content` of a message with calls may be null
  bool takes_absent_content = false;    ///< such a message may lack `content`
  bool has_short_ids = false;           ///< ids of calls must have nine letters and digits
  bool knows_developer = false;         ///< the role `developer` is more than any other name
};

/// Renders about ten conversations of a few words. Thread: any.
TemplateTraits probe_template(const ChatTemplate& chat_template,
                              const std::map<std::string, std::string, std::less<>>& role_tokens);

}  // namespace baton
