/// The keys of --structured-outputs-config (server/request/structured_output.h).
#include "server/request/structured_output.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

Result<StructuredOutputsConfig> parse(std::string_view text) {
  const auto value = json::parse(text, "the flag");
  EXPECT_TRUE(value) << text;
  return parse_structured_outputs_config(*value, "--structured-outputs-config");
}

TEST(StructuredOutputsConfig, reads_the_keys_that_mean_something) {
  const StructuredOutputsConfig none = parse("{}").value();
  EXPECT_EQ(none.spaces, grammar::JsonSpaces::readable);
  EXPECT_EQ(none.cache_bytes, 0u);
  const StructuredOutputsConfig all = parse(R"({"backend": "auto", "disable_any_whitespace": true, "cache_bytes": 2097152,
                                               "max_grammar_bytes": 1000, "max_states": 2000, "disable_fallback": true,
                                               "disable_additional_properties": false, "reasoning_parser": "",
                                               "enable_in_reasoning": false})")
                                          .value();
  EXPECT_EQ(all.spaces, grammar::JsonSpaces::none);
  const grammar::GrammarCache::Options options = cache_options(all, 1 << 30);
  EXPECT_EQ(options.max_bytes, 2097152u);
  EXPECT_EQ(options.grammar.max_text_bytes, 1000u);
  EXPECT_EQ(options.grammar.max_states, 2000u);
  EXPECT_EQ(options.grammar.work.bytes, 2097152);
  EXPECT_EQ(options.matcher.local_bytes, 2097152u / 4);
}

TEST(StructuredOutputsConfig, a_quarter_of_what_clients_may_take_is_the_default) {
  EXPECT_EQ(cache_options({}, std::int64_t{1} << 30).max_bytes, std::size_t{1} << 28);
  EXPECT_EQ(cache_options({}, std::int64_t{64} << 20).max_bytes, std::size_t{16} << 20);
}

TEST(StructuredOutputsConfig, refuses_other_keys_and_values_by_name) {
  for (const std::string_view text :
       {R"({"backend": "xgrammar"})", R"({"disable_additional_properties": true})", R"({"enable_in_reasoning": true})",
        R"({"reasoning_parser": "qwen3"})", R"({"frobnicate": 1})", R"({"disable_any_whitespace": 1})", R"({"cache_bytes": 5})",
        R"({"max_states": 0})", R"({"max_grammar_bytes": "1G"})"}) {
    const auto refused = parse(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(refused.error().param, "--structured-outputs-config");
    const std::string_view name = text.substr(2, text.find('"', 2) - 2);
    EXPECT_NE(refused.error().message.find(name), std::string::npos) << refused.error().message;
  }
  EXPECT_FALSE(parse("[]"));
}

}  // namespace
}  // namespace baton
