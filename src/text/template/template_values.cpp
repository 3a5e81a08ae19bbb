/// JSON as values of the template language.
#include "text/template/template_values.h"

#include <cstdint>
#include <string>
#include <vector>

#include "io/json_parse.h"

namespace baton {
namespace {

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

}  // namespace baton
