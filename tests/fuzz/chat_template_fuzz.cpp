/// Fuzzes the template engine: any text gives a template or an error, and rendering it ends within its limits. The
/// input is a template and, after a NUL byte, the variables as JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "io/json.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"
#include "jinja/strings.h"
#include "text/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace baton;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view source = input.substr(0, input.find('\0'));
  if (!jinja::is_valid_utf8(source)) return 0;
  const auto body = jinja::parse(source, {.trim_blocks = true, .lstrip_blocks = true});
  if (!body) {
    check(body.error().message.starts_with("chat template line "), "an error of parsing names no line");
    return 0;
  }
  const jinja::Limits limits{
      .output_bytes = 1 << 20, .memory_bytes = 8 << 20, .work = 300'000, .loop_iterations = 20'000, .depth = 600};
  jinja::Arena arena(limits, read_template_json);
  jinja::Scope* variables = arena.scope(jinja::global_scope(arena, 1'700'000'000));
  const auto context = json::parse(input.substr(std::min(input.size(), source.size() + 1)), "the variables");
  if (context && context->is_object()) {
    for (auto field = context->begin(); field != context->end(); ++field) {
      const auto value = template_value(arena, field.value(), TemplateTexts::view);
      if (value) arena.set(*variables, field.key(), *value);
    }
  }
  const auto text = jinja::Interpreter(arena).run(*body, variables);
  check(!text || text->size() <= limits.output_bytes, "the output is over its limit");
  return 0;
}
