/// The conversations that are rendered, and what their texts show.
#include "text/template/template_traits.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kTool = "probe_tool", kCall = "probe_call", kResult = "probe result", kText = "probe text",
                           kThought = "probe thought";
constexpr std::string_view kArguments = R"({"probe_argument": "probe_value"})";
constexpr std::string_view kBrokenArguments = R"({"probe_argument": "probe_va)";
constexpr std::string_view kValue = "probe_value";
constexpr std::string_view kShortId = "probe0001", kOtherShortId = "probe0002", kLongId = "call_0123456789abcdefghijkl";

Value message(std::string_view role, Value content) { return {{"role", role}, {"content", std::move(content)}}; }

Value tools(std::string_view name, bool is_bare = false) {
  const Value parameters = {{"type", "object"},
                            {"properties", {{"probe_parameter", {{"type", "string"}, {"description", "a text"}}}}},
                            {"required", Value::array({"probe_parameter"})}};
  Value function = {{"name", name}, {"parameters", parameters}};
  if (!is_bare) function["description"] = "a function";
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
  std::optional<std::string> render(Value messages, bool has_tools, bool has_prompt = false,
                                    bool has_bare_tools = false) const {
    ChatTemplate::Context context;
    context.add_generation_prompt = has_prompt;
    context.messages = std::move(messages);
    context.role_tokens = role_tokens_;
    if (has_tools) context.tools = tools(kTool, has_bare_tools);
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
  // Python's way of writing a dict is not a format of any model.
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
  traits.takes_broken_arguments =
      traits.takes_text_arguments && shows(probe.render_call(call(kBrokenArguments, kShortId)), kBrokenArguments);
  traits.takes_empty_content = takes([](Value&) {});
  traits.takes_null_content = takes([](Value& called) { called["content"] = nullptr; });
  traits.takes_absent_content = takes([](Value& called) { called.erase("content"); });
  traits.shows_several_calls = takes([](Value& called) {
    called["tool_calls"].push_back(called["tool_calls"][0]);
    called["tool_calls"][0]["function"]["name"] = kTool;
    called["tool_calls"][1]["id"] = kOtherShortId;
  });
  traits.takes_thoughtful_calls = takes([](Value& called) {
    called["content"] = kText;
    for (const std::string_view key : {"reasoning", "reasoning_content", "thinking"}) called[key] = kThought;
  });
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

constexpr std::string_view kFirst = "probe first", kSecond = "probe second", kAnswer = "probe answer";

/// With and without tools: as far as the template renders a plain conversation so.
std::vector<bool> ways_of(const Probe& probe, const TemplateTraits& traits) {
  std::vector<bool> ways;
  for (const bool has_tools : {false, true})
    if ((!has_tools || traits.shows_tools) && shows(probe.render(Value::array({message("user", kText)}), has_tools), kText))
      ways.push_back(has_tools);
  return ways;
}

/// Whether the template shows a conversation completely.
bool shows_all(const Probe& probe, const std::vector<bool>& ways, std::initializer_list<Value> messages,
               bool has_prompt = false) {
  for (const bool has_tools : ways) {
    const auto text = probe.render(Value::array_t(messages), has_tools, has_prompt);
    for (const Value& one : messages)
      if (!shows(text, one["content"].get_ref<const std::string&>())) return false;
  }
  return !ways.empty();
}

/// Sets where messages of the system and of the developer are shown.
void probe_systems(const Probe& probe, const std::vector<bool>& ways, TemplateTraits& traits) {
  const auto shows_every = [&](const auto& shows_with) {
    for (const std::string_view role : {"system", "developer"})
      if ((role == "system" || traits.knows_developer) && !shows_with(role)) return false;
    return true;
  };
  const Value user = message("user", kText), answer = message("assistant", kAnswer), next = message("user", kResult);
  traits.shows_system = shows_every([&](std::string_view role) {
    return shows_all(probe, ways, {message(role, kFirst), user});
  });
  traits.shows_two_systems = traits.shows_system && shows_every([&](std::string_view first) {
                               return shows_every([&](std::string_view second) {
                                 return shows_all(probe, ways, {message(first, kFirst), message(second, kSecond), user});
                               });
                             });
  // After one in front too: some templates show the last one alone.
  const Value front = message("system", kSecond);
  traits.shows_later_system = shows_every([&](std::string_view role) {
    const Value later = message(role, kFirst);
    return shows_all(probe, ways, {user, later, answer, next}) && shows_all(probe, ways, {user, answer, later, next}) &&
           (!traits.shows_system || shows_all(probe, ways, {front, user, later, answer, next}));
  });
  traits.shows_last_system = shows_every([&](std::string_view role) {
    const Value last = message(role, kFirst);
    return shows_all(probe, ways, {user, last}, /*has_prompt=*/true) &&
           shows_all(probe, ways, {user, answer, next, last}, /*has_prompt=*/true) &&
           (!traits.shows_system || shows_all(probe, ways, {front, user, last}, /*has_prompt=*/true));
  });
}

/// Whether a text shows both parts, and not the list that holds them as Python or JSON writes it: `'text': '...'`.
bool shows_parts(const std::optional<std::string>& text) {
  constexpr std::size_t kMember = std::string_view(R"(\"text\": \")").size();
  if (!shows(text, kFirst) || !shows(text, kSecond)) return false;
  const std::size_t at = text->find(kFirst), from = at - std::min(at, kMember);
  const std::string_view before = std::string_view(*text).substr(from, at - from);
  return before.find("text") == std::string_view::npos || before.find(':') == std::string_view::npos;
}

/// Sets whose content may be a list of texts.
void probe_parts(const Probe& probe, const std::vector<bool>& ways, TemplateTraits& traits) {
  const auto part = [](std::string_view text) { return Value{{"type", "text"}, {"text", text}}; };
  const Value parts = Value::array({part(kFirst), part(kSecond)});
  const auto takes = [&](const Value& messages) {
    return !ways.empty() &&
           std::ranges::all_of(ways, [&](bool has_tools) { return shows_parts(probe.render(messages, has_tools)); });
  };
  const Value user = message("user", kText), next = message("user", kResult);
  traits.takes_system_parts = traits.shows_system && takes(Value::array({message("system", parts), user}));
  traits.takes_user_parts = takes(Value::array({message("user", parts)})) &&
                            takes(Value::array({user, message("assistant", kAnswer), message("user", parts)}));
  traits.takes_assistant_parts = takes(Value::array({user, message("assistant", parts), next}));
  if (!traits.shows_calls || !traits.shows_results) return;
  Value called = call(traits.takes_object_arguments ? Value{{"probe_argument", kValue}} : Value(kArguments), kShortId);
  if (!traits.takes_empty_content) called["content"] = nullptr;
  Value made = result(kShortId);
  made["content"] = parts;
  traits.takes_tool_parts = takes(Value::array({user, std::move(called), std::move(made)}));
}

}  // namespace

TemplateTraits probe_template(const ChatTemplate& chat_template,
                              const std::map<std::string, std::string, std::less<>>& role_tokens) {
  const Probe probe(chat_template, role_tokens);
  TemplateTraits traits;
  traits.shows_tools = shows(probe.render(Value::array({message("user", kText)}), /*has_tools=*/true), kTool);
  traits.takes_bare_tools =
      !traits.shows_tools || shows(probe.render(Value::array({message("user", kText)}), /*has_tools=*/true,
                                                /*has_prompt=*/false, /*has_bare_tools=*/true),
                                   kTool);
  probe_calls(probe, traits);
  traits.knows_developer = knows_developer(probe);
  const std::vector<bool> ways = ways_of(probe, traits);
  probe_systems(probe, ways, traits);
  probe_parts(probe, ways, traits);
  return traits;
}

}  // namespace baton
