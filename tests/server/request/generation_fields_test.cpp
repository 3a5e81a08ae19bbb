/// Known, neutral, refused and unknown fields (server/request/generation_fields.h).
#include "server/request/generation_fields.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

json::Value body_with(std::string_view text) {
  auto body = json::parse(text, "the body");
  EXPECT_TRUE(body) << text;
  return body ? *body : json::Value::object();
}

TEST(OpenaiFields, accepts_known_fields_at_their_neutral_value) {
  for (const std::string_view text :
       {R"({})", R"({"presence_penalty": 0.5, "min_p": 0.1, "bad_words": ["x"]})", R"({"tools": [], "tool_choice": "none"})",
        R"({"tool_choice": "auto"})", R"({"structural_tag": null})", R"({"best_of": 1})", R"({"suffix": ""})",
        R"({"length_penalty": 2, "early_stopping": true, "mm_processor_kwargs": {"a": 1}, "audio": {"voice": "v"}})",
        R"({"prediction": {"type": "content", "content": "x"}, "verbosity": "low"})",
        R"({"web_search_options": {}, "thinking_token_budget": 100})", R"({"prompt_logprobs": 3})",
        R"({"modalities": ["text"]})", R"({"use_beam_search": false, "priority": 0})"})
    EXPECT_TRUE(refuse_fields_not_done(body_with(text))) << text;
}

TEST(OpenaiFields, names_the_field_that_is_not_done) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"functions": [{"name": "f"}]})", "functions"},
      {R"({"function_call": {"name": "f"}})", "function_call"},
      {R"({"structural_tag": "{}"})", "structural_tag"},
      {R"({"best_of": 3})", "best_of"},
      {R"({"suffix": "x"})", "suffix"},
      {R"({"truncate_prompt_tokens": 10})", "truncate_prompt_tokens"},
      {R"({"chat_template": "x"})", "chat_template"},
      {R"({"modalities": ["text", "audio"]})", "modalities"},
  };
  for (const auto& [text, field] : cases) {
    const auto refused = refuse_fields_not_done(body_with(text));
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(refused.error().param, field);
    EXPECT_TRUE(refused.error().message.starts_with("'" + std::string(field) + "' is not supported by this server"));
  }
  EXPECT_EQ(refuse_fields_not_done(body_with(R"({"best_of": 2})")).error().message,
            "'best_of' is not supported by this server; the value accepted is 1");
}

TEST(OpenaiFields, lists_only_unknown_fields_cut_short) {
  EXPECT_EQ(
      unknown_fields(body_with(R"({"model": "m", "user": "u", "tools": [], "prompt_cache_key": "k", "top_k": 1, "grammar": "",
                                      "response_format": {}, "structured_outputs": {}, "guided_json": {}, "json_schema": {}})")),
      std::vector<std::string>{});
  EXPECT_EQ(unknown_fields(body_with(R"({"topk": 1, "model": "m", "frobnicate": {"a": 1}})")),
            (std::vector<std::string>{"topk", "frobnicate"}));
  EXPECT_EQ(unknown_fields({{std::string(5000, 'x'), 1}}).at(0).size(), 64u);
}

}  // namespace
}  // namespace baton
