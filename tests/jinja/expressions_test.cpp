/// The template language: small templates compared with Jinja2.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "io/json.h"
#include "support/source_folder.h"
#include "text/template/chat_template.h"

namespace baton {
namespace {

/// expressions.json has Jinja2's text or error for each template (tools/make_goldens.py). An error must be an error
/// here too; errors of Python's types must have the same text.
TEST(Jinja, equals_jinja2_on_expressions_statements_and_errors) {
  const auto path = test::source_folder() / "tests/goldens/chat_templates/expressions.json";
  const json::Value file = json::parse_file(path).value();
  ChatTemplate::Context context;
  context.extra = file["context"];
  EXPECT_GE(file["cases"].size(), 190U);
  for (const json::Value& golden : file["cases"]) {
    const auto source = golden["template"].get<std::string>();
    const auto chat_template = ChatTemplate::parse(source);
    const auto text =
        chat_template ? chat_template->render(context) : Result<std::string>(tl::unexpected<Error>(chat_template.error()));
    if (golden.contains("expected")) {
      EXPECT_EQ(text ? *text : "error: " + text.error().message, golden["expected"].get<std::string>()) << source;
      continue;
    }
    EXPECT_FALSE(text.has_value()) << source << " gave " << *text << ", but in Jinja2 " << golden["error"];
    if (text.has_value()) continue;
    const auto error = golden["error"].get<std::string>();
    if (error.starts_with("TypeError: can only") || error.starts_with("TypeError: unsupported") ||
        error.starts_with("UndefinedError: ")) {
      EXPECT_TRUE(text.error().message.ends_with(error.substr(error.find(": ") + 2)))
          << text.error().message << " is not " << error;
    }
    if (!error.starts_with("TemplateError")) {
      EXPECT_TRUE(text.error().message.starts_with("chat template line 1")) << source << ": " << text.error().message;
    }
  }
}

}  // namespace
}  // namespace baton
