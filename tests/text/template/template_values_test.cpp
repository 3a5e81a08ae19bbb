/// JSON as values of templates, and the filter from_json (text/template/chat_template.h).
#include "text/template/chat_template.h"

#include <gtest/gtest.h>

#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace baton {
namespace {

/// The output of `source`, or its error.
std::string rendered(const std::string& source) {
  const auto body = jinja::parse(source, {});
  if (!body) return body.error().message;
  jinja::Arena arena(jinja::Limits{}, read_template_json);
  const auto text = jinja::Interpreter(arena).run(*body, arena.scope(jinja::global_scope(arena, 0)));
  return text ? *text : text.error().message;
}

TEST(TemplateValues, from_json_reads_every_type) {
  EXPECT_EQ(rendered(R"({{ ('[1, {"a": "x"}, 2.5, true, null]' | from_json)[1].a }})"), "x");
  EXPECT_EQ(rendered(R"({{ '[1, -2, 2.5, true, null, "s"]' | from_json }})"), "[1, -2, 2.5, True, None, 's']");
  // Integers of more bits keep their digits.
  for (const std::string_view digits : {"9223372036854775808", "18446744073709551615", "-123456789012345678901234567890"}) {
    EXPECT_EQ(rendered("{{ '" + std::string(digits) + "' | from_json }}"), digits);
    EXPECT_EQ(rendered("{{ '[" + std::string(digits) + "]' | from_json | tojson }}"), "[" + std::string(digits) + "]");
  }
}

TEST(TemplateValues, from_json_refuses_what_is_no_json) {
  EXPECT_NE(rendered("{{ '{' | from_json }}").find("from_json"), std::string::npos);
  EXPECT_NE(rendered("{{ 1 | from_json }}").find("from_json needs a string"), std::string::npos);
}

TEST(TemplateValues, strings_are_views_or_copies_as_asked) {
  jinja::Arena arena(jinja::Limits{}, read_template_json);
  const json::Value text = "a text that no small buffer holds, long enough for memory of its own";
  const char* own = text.get_ref<const std::string&>().data();
  EXPECT_EQ(template_value(arena, text, TemplateTexts::view)->as_string().data(), own);
  EXPECT_NE(template_value(arena, text, TemplateTexts::copy)->as_string().data(), own);
}

}  // namespace
}  // namespace baton
