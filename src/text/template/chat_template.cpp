/// Parsing and rendering of chat templates over the Jinja engine.
#include "text/template/chat_template.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/json_parse.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"
#include "jinja/strings.h"

namespace baton {
namespace {

/// What Transformers puts after the continued text to find its end. A template that trims texts removes the space.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

tl::unexpected<Error> no_continuation(std::string_view field, std::string_view why) {
  return fail(ErrorCode::invalid_request,
              fmt::format("'continue_final_message' needs a last message whose '{}' {}", field, why), "continue_final_message");
}

/// The messages with the mark after the field of the last one: a text, or the last text of a list of parts.
Result<json::Value> with_mark(json::Value messages, const std::string& field) {
  json::Value* last = messages.is_array() && !messages.empty() ? &messages.back() : nullptr;
  if (last == nullptr || !last->is_object() || !last->contains(field)) return no_continuation(field, "is a text");
  json::Value* continued = &(*last)[field];
  for (std::size_t i = continued->is_array() ? continued->size() : 0; i > 0; --i) {
    if (json::Value& part = (*continued)[i - 1]; part.is_object() && part.contains("text")) {
      continued = &part["text"];
      break;
    }
  }
  if (!continued->is_string()) return no_continuation(field, "is a text");
  continued->get_ref<std::string&>() += kMark;
  return messages;
}

/// The text before the mark; without the spaces before it if the template trimmed the field.
Result<std::string> cut_at_mark(std::string text, std::string_view field) {
  const std::size_t found = text.rfind(kMark.substr(0, kMark.size() - 1));
  if (found == std::string::npos) return no_continuation(field, "the chat template writes out");
  const bool is_trimmed = !std::string_view(text).substr(found).starts_with(kMark);
  const std::string_view before = std::string_view(text).substr(0, found);
  text.resize(is_trimmed ? jinja::strip(before, /*left=*/false, /*right=*/true).size() : found);
  return text;
}

Result<jinja::Value> value_at(jinja::Arena& arena, const json::Value& json, TemplateTexts texts, int depth) {
  if (depth > json::kMaxDepth)
    return fail(ErrorCode::invalid_request, "a value is nested deeper than " + std::to_string(json::kMaxDepth) + " levels");
  if (!arena.has_stack() || !arena.spend(1)) return jinja::fail_exhausted(arena);
  using Type = json::Value::value_t;
  switch (json.type()) {
    case Type::boolean: return jinja::Value::boolean(json.get_ref<const json::Value::boolean_t&>());
    case Type::number_integer: return jinja::Value::integer(json.get_ref<const json::Value::number_integer_t&>());
    case Type::number_unsigned: {
      const std::uint64_t number = json.get_ref<const json::Value::number_unsigned_t&>();
      if (number > static_cast<std::uint64_t>(INT64_MAX)) return jinja::Value::digits(arena.text(std::to_string(number)));
      return jinja::Value::integer(static_cast<std::int64_t>(number));
    }
    case Type::number_float: return jinja::Value::floating(json.get_ref<const json::Value::number_float_t&>());
    case Type::string: {
      const std::string& text = json.get_ref<const std::string&>();
      if (text.size() > arena.limits().memory_bytes) arena.exhaust("memory");
      return texts == TemplateTexts::copy ? arena.text(std::string_view(text)) : jinja::Value::string(text);
    }
    case Type::binary: return jinja::Value::digits(arena.text(json::digits_of(json)));
    case Type::array: {
      std::vector<jinja::Value> items;
      if (!arena.reserve(json.size(), sizeof(jinja::Value))) return jinja::fail_exhausted(arena);
      items.reserve(json.size());
      for (const json::Value& element : json) {
        BATON_TRY(const jinja::Value value, value_at(arena, element, texts, depth + 1));
        items.push_back(value);
      }
      return arena.list(jinja::List::Flavor::list, std::move(items));
    }
    case Type::object: {
      jinja::Dict* dict = arena.dict();
      for (auto field = json.begin(); field != json.end(); ++field) {
        BATON_TRY(const jinja::Value value, value_at(arena, field.value(), texts, depth + 1));
        const jinja::Value key = jinja::Value::string(field.key());
        arena.set(*dict, texts == TemplateTexts::copy ? arena.text(key.as_string()) : key, value);
      }
      return jinja::Value::dict(dict);
    }
    default: return jinja::Value::none();
  }
}

}  // namespace

Result<jinja::Value> template_value(jinja::Arena& arena, const json::Value& json, TemplateTexts texts) {
  return value_at(arena, json, texts, 0);
}

Result<jinja::Value> read_template_json(jinja::Arena& arena, std::string_view text) {
  BATON_TRY(const json::Value parsed, json::parse_exact(text, "from_json"));
  return template_value(arena, parsed, TemplateTexts::copy);  // `parsed` dies here
}

struct ChatTemplate::Tree {
  jinja::Body body;
  jinja::Limits limits;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source) { return parse(std::move(source), jinja::Limits{}); }

Result<ChatTemplate> ChatTemplate::parse(std::string source, const jinja::Limits& limits) {
  if (!jinja::is_valid_utf8(source)) return fail(ErrorCode::invalid_data, "the chat template is not valid UTF-8");
  BATON_TRY(jinja::Body body, jinja::parse(source, {.trim_blocks = true, .lstrip_blocks = true}));
  return ChatTemplate(std::make_unique<const Tree>(Tree{std::move(body), limits}));
}

Result<std::string> ChatTemplate::render(const Context& context) const {
  if (context.continued_field.empty()) return render_messages(context, context.messages);
  BATON_TRY(const json::Value marked, with_mark(context.messages, context.continued_field));
  BATON_TRY(std::string text, render_messages(context, marked));
  return cut_at_mark(std::move(text), context.continued_field);
}

Result<std::string> ChatTemplate::render_messages(const Context& context, const json::Value& messages) const {
  jinja::Limits limits = tree_->limits;
  if (context.max_output_bytes > 0) limits.output_bytes = std::min(limits.output_bytes, context.max_output_bytes);
  jinja::Arena arena(limits, read_template_json, context.is_cancelled);
  const auto now = std::chrono::system_clock::to_time_t(context.now.value_or(std::chrono::system_clock::now()));
  jinja::Scope* variables = arena.scope(jinja::global_scope(arena, now));
  const auto set_json = [&](std::string_view name, const json::Value& value) -> Result<void> {
    BATON_TRY(const jinja::Value converted, template_value(arena, value, TemplateTexts::view));
    arena.set(*variables, name, converted);
    return {};
  };
  // As in Transformers, tools and documents are defined, and none unless given.
  BATON_TRY_VOID(set_json("messages", messages));
  BATON_TRY_VOID(set_json("tools", context.tools));
  BATON_TRY_VOID(set_json("documents", context.documents));
  arena.set(*variables, "add_generation_prompt", jinja::Value::boolean(context.add_generation_prompt));
  for (const auto& [name, token] : context.role_tokens) arena.set(*variables, name, jinja::Value::string(token));
  if (!context.extra.is_null() && !context.extra.is_object())
    return fail(ErrorCode::invalid_request, "the variables of a chat template must be an object", "chat_template_kwargs");
  for (auto field = context.extra.begin(); field != context.extra.end(); ++field)
    BATON_TRY_VOID(set_json(field.key(), field.value()));
  return jinja::Interpreter(arena).run(tree_->body, variables);
}

}  // namespace baton
