/// Its templates, and the bytes that its context can hold (server/served/served_model.h).
#include "server/served/served_model.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

TEST(ServedModel, knows_how_many_bytes_its_context_holds) {
  ServedModel model = byte_model();
  EXPECT_TRUE(model.check_prompt_bytes(std::size_t{1} << 40, "prompt"));  // without a context there is no limit
  model.set_context(100);
  std::size_t longest = 0;
  for (TokenId id = 0; id < model.tokenizer.n_vocab(); ++id) longest = std::max(longest, model.tokenizer.token_text(id).size());
  EXPECT_EQ(model.max_prompt_bytes, 100 * longest);
  EXPECT_TRUE(model.check_prompt_bytes(100 * longest, "prompt"));
  const auto refused = model.check_prompt_bytes(100 * longest + 1, "prompt");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(refused.error().param, "prompt");
  EXPECT_NE(refused.error().message.find("maximum context length is 100 tokens"), std::string::npos);
}

TEST(ServedModel, looks_at_its_templates) {
  ServedModel model = byte_model();
  EXPECT_FALSE(model.traits.shows_tools);
  EXPECT_TRUE(model.traits.shows_results) << "it writes any role";
  EXPECT_FALSE(model.traits.shows_calls);
  EXPECT_TRUE(model.markers.empty());
  EXPECT_EQ(&model.template_for(/*has_tools=*/true), &*model.chat_template);
  model.tool_template.emplace(parsed_template(kToolTemplate));
  model.look_at_templates();
  EXPECT_EQ(&model.template_for(/*has_tools=*/true), &*model.tool_template);
  EXPECT_EQ(&model.template_for(/*has_tools=*/false), &*model.chat_template);
  EXPECT_TRUE(model.traits_for(/*has_tools=*/true).shows_tools);
  EXPECT_FALSE(model.traits_for(/*has_tools=*/false).shows_tools);
}

}  // namespace
}  // namespace baton
