/// The fields of a line become a template's context.
#include "apps/render_line.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::array<std::string_view, 7> kLineFields = {
    "messages",     "tools", "documents", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
    "chat_template"};

/// The field as a list of objects; null where the line has none. An empty list is a list, as in Transformers.
Result<json::Value> list_of_objects(const json::Value& line, std::string_view field) {
  const json::Value* value = json::find(line, field);
  if (value == nullptr || value->is_null()) return json::Value(nullptr);
  if (!value->is_array()) return json::wrong_type(field, "a list", *value);
  for (const json::Value& element : *value)
    if (!element.is_object()) return json::wrong_type(fmt::format("{}[]", field), "an object", element);
  return *value;
}

/// The field of the last message to continue with: `continue_final_message` is true for its content, or the field's
/// name.
Result<std::string> continued_field(const json::Value& line) {
  const json::Value* value = json::find(line, "continue_final_message");
  if (value == nullptr || value->is_null()) return std::string();
  if (value->is_string()) return value->get_ref<const std::string&>();
  if (!value->is_boolean()) return json::wrong_type("continue_final_message", "true, false or a message's field", *value);
  return std::string(value->get_ref<const json::Value::boolean_t&>() ? "content" : "");
}

Result<ChatTemplate::Context> read_context(const json::Value& line, const RoleTokens& role_tokens) {
  if (!line.is_object())
    return fail(ErrorCode::invalid_request, fmt::format("the line must be an object, not {}", json::describe_type(line)));
  for (auto field = line.begin(); field != line.end(); ++field)
    if (std::ranges::find(kLineFields, field.key()) == kLineFields.end())
      return fail(ErrorCode::invalid_request,
                  fmt::format("unknown field '{}'; variables of the template belong to 'chat_template_kwargs'",
                              field.key().substr(0, 100)));
  ChatTemplate::Context context;
  BATON_TRY(context.messages, list_of_objects(line, "messages"));
  if (context.messages.is_null()) return json::missing("messages");
  BATON_TRY(context.tools, list_of_objects(line, "tools"));
  BATON_TRY(context.documents, list_of_objects(line, "documents"));
  BATON_TRY(context.continued_field, continued_field(line));
  BATON_TRY(const auto add, json::get_optional<bool>(line, "add_generation_prompt"));
  const bool continues = !context.continued_field.empty();
  if (continues && add.value_or(false))
    return fail(ErrorCode::invalid_request, "'continue_final_message' needs 'add_generation_prompt' to be false");
  context.add_generation_prompt = add.value_or(!continues);
  context.role_tokens = role_tokens;
  if (const json::Value* variables = json::find(line, "chat_template_kwargs"); variables != nullptr && !variables->is_null()) {
    if (!variables->is_object()) return json::wrong_type("chat_template_kwargs", "an object", *variables);
    context.extra = *variables;
  }
  return context;
}

}  // namespace

ParsedTemplates::ParsedTemplates(TemplateSources sources) : sources_(std::move(sources)) {
  for (const auto& [name, source] : sources_) parsed_.emplace(name, ChatTemplate::parse(source));
}

Result<const ChatTemplate*> ParsedTemplates::choose(std::string_view asked, bool has_tools) const {
  BATON_TRY(const std::string_view name, choose_template(sources_, asked, has_tools));
  const Result<ChatTemplate>& found = parsed_.find(name)->second;
  if (!found) return tl::unexpected<Error>(found.error());
  return &*found;
}

Result<std::string> render_line(const json::Value& line, const RoleTokens& role_tokens, const ParsedTemplates& templates) {
  BATON_TRY(const ChatTemplate::Context context, read_context(line, role_tokens));
  BATON_TRY(const auto asked, json::get_optional<std::string>(line, "chat_template"));
  if (asked && asked->find('{') != std::string::npos && !templates.contains(*asked)) {
    BATON_TRY(const ChatTemplate own, ChatTemplate::parse(*asked));
    return own.render(context);
  }
  BATON_TRY(const ChatTemplate* const chosen, templates.choose(asked.value_or(""), !context.tools.is_null()));
  return chosen->render(context);
}

}  // namespace baton
