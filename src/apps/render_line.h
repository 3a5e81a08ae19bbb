/// One line of `baton render`: which template it gets, and the text that the template makes of its fields.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "text/template/chat_template.h"
#include "text/template/chat_templates.h"

namespace baton {

/// The named templates of a model, each parsed once. A damaged one is an error only where it is chosen. Thread: any,
/// several at once.
class ParsedTemplates {
 public:
  explicit ParsedTemplates(TemplateSources sources);
  bool contains(std::string_view name) const { return sources_.contains(name); }
  /// The template that choose_template takes. Errors: those of choose_template and of parsing it.
  Result<const ChatTemplate*> choose(std::string_view asked, bool has_tools) const;

 private:
  TemplateSources sources_;
  std::map<std::string, Result<ChatTemplate>, std::less<>> parsed_;
};

/// bos_token, eos_token... as templates see them.
using RoleTokens = std::map<std::string, std::string, std::less<>>;

/// The text of a line with the fields that apps/programs.h lists. `chat_template` names one of `templates` or is a
/// template itself. Errors: invalid_request, with the field's name; those of parsing and rendering the template.
Result<std::string> render_line(const json::Value& line, const RoleTokens& role_tokens, const ParsedTemplates& templates);

}  // namespace baton
