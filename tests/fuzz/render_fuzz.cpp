/// Fuzzes the lines of `baton render`: any bytes give an error, or the text of the template that the line chooses. The
/// engine of the templates has a target of its own (chat_template), so lines that bring a template are left out.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "apps/render_line.h"
#include "core/check.h"
#include "io/json.h"
#include "support/fuzz_parts.h"
#include "text/split/unicode.h"

namespace {

namespace json = baton::json;

/// Each writes its own letter, then what it got.
const baton::ParsedTemplates& templates() {
  static const baton::ParsedTemplates parsed(baton::TemplateSources{
      {"default",
       "D{{ messages | tojson }}\n{{ add_generation_prompt }}{{ bos_token }}{% for m in messages %}{{ m.role }}{{ m.content }}"
       "{% endfor %}"},
      {"tool_use", "T{{ messages | tojson }}\n{{ tools | tojson }}{{ enable_thinking }}"},
      {"rag", "R{{ messages | tojson }}\n{{ documents | tojson }}{{ messages[-1].content }}"},
      {"broken", "{% if %}"}});
  return parsed;
}

char expected_letter(const json::Value& line) {
  const json::Value* asked = json::find(line, "chat_template");
  if (asked != nullptr && asked->is_string() && *asked != "")
    return *asked == "default" ? 'D' : *asked == "tool_use" ? 'T' : *asked == "rag" ? 'R' : '-';
  const json::Value* tools = json::find(line, "tools");
  return tools != nullptr && !tools->is_null() ? 'T' : 'D';
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto line = json::parse(baton::test::fuzz_text(data, size), "the line");
  if (!line) return 0;
  if (const json::Value* own = json::find(*line, "chat_template"))
    if (own->is_string() && own->get_ref<const std::string&>().find('{') != std::string::npos) return 0;
  const auto text = baton::render_line(*line, {{"bos_token", "<s>"}}, templates());
  if (!text) {
    baton::check(!text.error().message.empty(), "an error without words");
    return 0;
  }
  baton::check(baton::unicode::is_valid_utf8(*text), "a text that is not UTF-8");
  const json::Value* continued = json::find(*line, "continue_final_message");
  const bool is_cut = continued != nullptr && (continued->is_string() ? *continued != "" : *continued == true);
  if (is_cut) return 0;
  baton::check(!text->empty() && text->front() == expected_letter(*line), "another template than the line asks for");
  const json::Value* variables = json::find(*line, "chat_template_kwargs");
  if (variables != nullptr && variables->contains("messages")) return 0;
  const auto messages = json::parse(std::string_view(*text).substr(1, text->find('\n') - 1), "the messages");
  baton::check(messages.has_value() && messages->size() == (*line)["messages"].size(), "a message was lost");
  return 0;
}
