/// Parsing and rendering of chat templates over the Jinja engine.
#include "text/chat_template.h"

#include <ctime>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/parser.h"
#include "jinja/strings.h"
#include "text/template_values.h"

namespace baton {

struct ChatTemplate::Tree {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  if (!jinja::is_valid_utf8(source)) return fail(ErrorCode::invalid_data, "the chat template is not valid UTF-8");
  BATON_TRY(jinja::Body body, jinja::parse(source, {.trim_blocks = true, .lstrip_blocks = true}));
  return ChatTemplate(std::make_unique<const Tree>(Tree{std::move(body)}));
}

Result<std::string> ChatTemplate::render(const Context& context) const {
  jinja::Arena arena(jinja::Limits{}, read_template_json);
  const auto now = std::chrono::system_clock::to_time_t(context.now.value_or(std::chrono::system_clock::now()));
  jinja::Scope* variables = arena.scope(jinja::global_scope(arena, now));
  const auto set_json = [&](std::string_view name, const json::Value& value) -> Result<void> {
    BATON_TRY(const jinja::Value converted, template_value(arena, value, TemplateTexts::view));
    variables->set(name, converted);
    return {};
  };
  BATON_TRY_VOID(set_json("messages", context.messages));
  BATON_TRY_VOID(set_json("tools", context.tools));
  variables->set("documents", jinja::Value::none());  // as in Transformers: defined, and none unless given
  variables->set("add_generation_prompt", jinja::Value::boolean(context.add_generation_prompt));
  variables->set("bos_token", jinja::Value::string(context.bos_token));
  variables->set("eos_token", jinja::Value::string(context.eos_token));
  if (!context.extra.is_null() && !context.extra.is_object())
    return fail(ErrorCode::invalid_request, "the variables of a chat template must be an object", "chat_template_kwargs");
  for (auto field = context.extra.begin(); field != context.extra.end(); ++field)
    BATON_TRY_VOID(set_json(field.key(), field.value()));
  return jinja::Interpreter(arena).run(tree_->body, variables);
}

}  // namespace baton
