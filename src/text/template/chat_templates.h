/// The chat templates of a model by name, and which of them a conversation gets.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// Sources of templates by name. A model with one template has it as "default"; others are called tool_use, rag...
using TemplateSources = std::map<std::string, std::string, std::less<>>;

/// The templates of the field `chat_template` of a tokenizer_config.json or chat_template.json: a text, a list of
/// {"name", "template"}, or an object of names and texts. Empty where there is none. Errors: invalid_data.
Result<TemplateSources> template_sources(const json::Value& config, std::string_view file);

/// The templates in files of their own: chat_template.jinja is "default", additional_chat_templates/NAME.jinja is NAME.
Result<TemplateSources> read_template_files(const std::filesystem::path& folder);

/// The name of the template that Transformers takes: `asked`; if that is empty, "tool_use" for a conversation with
/// tools where the model has it, or else "default". Errors (invalid_request) list the names that there are.
Result<std::string_view> choose_template(const TemplateSources& sources, std::string_view asked, bool has_tools);

}  // namespace baton
