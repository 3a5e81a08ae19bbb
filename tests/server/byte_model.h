/// A served model whose tokens are bytes, so that tests can write tokens as text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/served/served_model.h"
#include "support/tokenizer_files.h"

namespace baton {

inline constexpr TokenId kEndToken = 260;  ///< "<|end|>"
inline constexpr std::int32_t kByteModelVocab = 262;

inline constexpr std::string_view kByteTemplate =
    "{% for m in messages %}{% if m.role == 'robot' %}{{ raise_exception('robots may not speak') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}{{ suffix }}";

inline Tokenizer byte_tokenizer() {
  auto tokenizer = Tokenizer::from_json(json::dump(test::byte_level_tokenizer()), R"({"eos_token": "<|end|>"})");
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  return std::move(*tokenizer);
}

inline ChatTemplate parsed_template(std::string_view source) {
  auto parsed = ChatTemplate::parse(std::string(source));
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return std::move(*parsed);
}

/// Served as "demo" and "alias", with a template that writes "[role]content".
inline ServedModel byte_model(bool has_template = true) {
  std::optional<ChatTemplate> chat_template;
  if (has_template) chat_template.emplace(parsed_template(kByteTemplate));
  ServedModel model{{"demo", "alias"}, "/models/demo", byte_tokenizer(), std::move(chat_template), {}, kByteModelVocab, 2048};
  model.weight_scheme = "int4";
  model.activation_scheme = "bfloat16";
  model.look_at_templates();
  return model;
}

/// Writes tools, calls and reasoning as Hermes's and Qwen's templates do.
inline constexpr std::string_view kToolTemplate =
    "{% if tools %}[tools]{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if enable_thinking %}<think>\n{% endif %}{% endif %}";

/// The same model with that template.
inline ServedModel tool_model() {
  ServedModel model = byte_model();
  model.chat_template.emplace(parsed_template(kToolTemplate));
  model.format = parsers::MessageFormat::from_template(kToolTemplate);
  model.look_at_templates();
  return model;
}

inline json::Value parsed(std::string_view text) {
  auto value = json::parse(text, "the text");
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

}  // namespace baton
