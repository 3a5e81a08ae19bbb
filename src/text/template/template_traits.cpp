/// The conversations that are rendered, and what their texts show.
#include "text/template/template_traits.h"

#include <optional>
#include <string_view>
#include <utility>

#include "io/json.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kTool = "probe_tool", kCall = "probe_call", kResult = "probe result", kText = "probe text";
constexpr std::string_view kArguments = R"({"probe_argument": "probe_value"})";
constexpr std::string_view kValue = "probe_value";
constexpr std::string_view kShortId = "probe0001", kLongId = "call_0123456789abcdefghijkl";

Value message(std::string_view role, Value content) { return {{"role", role}, {"content", std::move(content)}}; }

/// A list with one tool of this name.
Value tools(std::string_view name) {
  const Value parameters = {{"type", "object"},
                            {"properties", {{"probe_parameter", {{"type", "string"}, {"description", "a text"}}}}},
                            {"required", Value::array({"probe_parameter"})}};
  const Value function = {{"name", name}, {"description", "a function"}, {"parameters", parameters}};
  return Value::array({Value{{"type", "function"}, {"function", function}}});
}

/// A message of the assistant that calls a function.
Value call(Value arguments, std::string_view id) {
  const Value function = {{"name", kCall}, {"arguments", std::move(arguments)}};
  Value made = message("assistant", "");
  made["tool_calls"] = Value::array({Value{{"id", id}, {"type", "function"}, {"function", function}}});
  return made;
}

Value result(std::string_view id) {
  Value made = message("tool", kResult);
  made["tool_call_id"] = id;
  made["name"] = kCall;
  return made;
}

class Probe {
 public:
  Probe(const ChatTemplate& chat_template, const std::map<std::string, std::string, std::less<>>& role_tokens)
      : template_(chat_template), role_tokens_(role_tokens) {}

  /// The text of a conversation; nullopt where the template refuses it.
  std::optional<std::string> render(Value messages, bool has_tools) const {
    ChatTemplate::Context context;
    context.messages = std::move(messages);
    context.role_tokens = role_tokens_;
    if (has_tools) context.tools = tools(kTool);
    auto text = template_.render(context);
    if (!text) return std::nullopt;
    return std::move(*text);
  }
  /// The same of a question, a call, its result.
  std::optional<std::string> render_call(Value called, std::string_view id = kShortId) const {
    return render(Value::array({message("user", kText), std::move(called), result(id)}), /*has_tools=*/true);
  }

 private:
  const ChatTemplate& template_;
  const std::map<std::string, std::string, std::less<>>& role_tokens_;
};

bool shows(const std::optional<std::string>& text, std::string_view part) {
  return text && text->find(part) != std::string::npos;
}

/// Sets what the template says of the arguments and the content of a message with calls.
void probe_calls(const Probe& probe, TemplateTraits& traits) {
  const Value object = {{"probe_argument", kValue}};
  // Python's way of writing a dict is no format of any model.
  constexpr std::string_view kRepresentation = "{'probe_argument'";
  const auto is_written = [&](const std::optional<std::string>& text) {
    return shows(text, kCall) && shows(text, kValue) && !shows(text, kRepresentation);
  };
  const auto probe_arguments = [&](const auto& set_content) {
    Value as_object = call(object, kShortId), as_text = call(kArguments, kShortId);
    set_content(as_object);
    set_content(as_text);
    const auto text = probe.render_call(std::move(as_text));
    traits.takes_object_arguments |= is_written(probe.render_call(std::move(as_object)));
    traits.takes_text_arguments |= shows(text, kCall) && shows(text, kArguments);
  };
  probe_arguments([](Value&) {});
  if (!traits.takes_object_arguments && !traits.takes_text_arguments)
    probe_arguments([](Value& called) { called["content"] = nullptr; });
  if (!traits.takes_object_arguments && !traits.takes_text_arguments)
    probe_arguments([](Value& called) { called.erase("content"); });
  traits.shows_calls = traits.takes_object_arguments || traits.takes_text_arguments;
  if (!traits.shows_calls) {
    traits.shows_results = shows(probe.render_call(message("assistant", kArguments)), kResult);
    return;
  }
  const Value arguments = traits.takes_object_arguments ? object : Value(kArguments);
  const auto takes = [&](const auto& change) {
    Value called = call(arguments, kShortId);
    change(called);
    const auto text = probe.render_call(std::move(called));
    return is_written(text) && !shows(text, "None");
  };
  traits.takes_empty_content = takes([](Value&) {});
  traits.takes_null_content = takes([](Value& called) { called["content"] = nullptr; });
  traits.takes_absent_content = takes([](Value& called) { called.erase("content"); });
  const auto shows_result = [&](std::string_view id) {
    Value called = call(arguments, id);
    if (!traits.takes_empty_content) called["content"] = nullptr;
    return shows(probe.render_call(std::move(called), id), kResult);
  };
  traits.shows_results = shows_result(kShortId);
  traits.has_short_ids = traits.shows_results && !shows_result(kLongId);
}

/// Whether the template does more with the role `developer` than to write its name.
bool knows_developer(const Probe& probe) {
  constexpr std::string_view kDeveloper = "developer", kNobody = "probe_role";
  const auto with_role = [&](std::string_view role) {
    return probe.render(Value::array({message(role, kText), message("user", kResult)}), /*has_tools=*/false);
  };
  const auto developer = with_role(kDeveloper);
  if (!shows(developer, kText)) return false;
  auto nobody = with_role(kNobody);
  if (!shows(nobody, kText)) return true;
  for (std::size_t at = nobody->find(kNobody); at != std::string::npos; at = nobody->find(kNobody, at))
    nobody->replace(at, kNobody.size(), kDeveloper);
  return *developer != *nobody;
}

}  // namespace

TemplateTraits probe_template(const ChatTemplate& chat_template,
                              const std::map<std::string, std::string, std::less<>>& role_tokens) {
  const Probe probe(chat_template, role_tokens);
  TemplateTraits traits;
  traits.shows_tools = shows(probe.render(Value::array({message("user", kText)}), /*has_tools=*/true), kTool);
  probe_calls(probe, traits);
  traits.knows_developer = knows_developer(probe);
  return traits;
}

}  // namespace baton
