/// Formats of messages: names, and what an answer without a format becomes.
#include "parsers/message_format.h"

#include <gtest/gtest.h>

namespace baton::parsers {
namespace {

TEST(MessageFormat, without_a_format_everything_is_content) {
  const auto parser = MessageFormat::from_template("{{ messages[0].content }}").parser(nullptr, false);
  std::vector<MessagePiece> pieces;
  parser->take("a <tool", pieces);
  parser->take("", pieces);
  parser->take("_call>", pieces);
  parser->end(pieces);
  EXPECT_EQ(pieces, (std::vector<MessagePiece>{{.text = "a <tool"}, {.text = "_call>"}}));
}

TEST(MessageFormat, refuses_unknown_names_and_says_which_there_are) {
  EXPECT_TRUE(MessageFormat::make("", "auto", ""));
  for (const auto& format : {MessageFormat::make("hermse", "", ""), MessageFormat::make("", "hermse", "")}) {
    ASSERT_FALSE(format);
    EXPECT_NE(format.error().message.find("'hermse'; known are: auto"), std::string::npos) << format.error().message;
  }
}

TEST(MessageFormat, without_a_format_no_call_can_be_demanded) {
  const std::vector<Tool> tools{{.name = "f"}};
  const MessageFormat plain;
  EXPECT_FALSE(*plain.grammar(tools, {.kind = ToolChoice::Kind::none}, true));
  EXPECT_FALSE(*plain.grammar(tools, {.kind = ToolChoice::Kind::automatic}, true));
  EXPECT_EQ(plain.grammar(tools, {.kind = ToolChoice::Kind::required}, true).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace baton::parsers
