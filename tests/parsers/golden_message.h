/// Answers with what is made of them, wherever their text is cut.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/json.h"
#include "parsers/message_format.h"
#include "support/message_cuts.h"
#include "support/tool_index.h"

namespace baton::parsers {

/// Pieces as text: |content, |think reasoning, |call name#id and @call arguments, after which ~ says that they are not
/// complete.
inline std::string shown(const std::vector<MessagePiece>& pieces) {
  std::string text;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const MessagePiece& piece = pieces[i];
    switch (piece.kind) {
      case MessagePiece::Kind::content: text += "|" + piece.text; break;
      case MessagePiece::Kind::reasoning: text += "|think " + piece.text; break;
      case MessagePiece::Kind::call:
        text += fmt::format("|{} {}{}", piece.call, piece.text, piece.id.empty() ? "" : "#" + piece.id);
        break;
      case MessagePiece::Kind::arguments: text += fmt::format("@{} {}{}", piece.call, piece.text, piece.is_complete ? "" : "~");
    }
  }
  return text;
}

inline std::shared_ptr<const ToolIndex> tools() {
  static const auto kTools = testing::index_of({
      {.name = "get_weather",
       .parameters = *json::parse(R"({"type": "object", "properties": {"city": {"type": "string"},
           "days": {"type": "integer"}, "exact": {"type": "boolean"}, "units": {"type": ["string", "null"]},
           "at": {"$ref": "#/$defs/point"}, "tags": {"anyOf": [{"type": "array"}, {"type": "null"}]}},
           "$defs": {"point": {"type": "object"}}})",
                                  "tools")},
      {.name = "get_user_info"},
      {.name = "add",
       .parameters = *json::parse(R"({"properties": {"a": {"type": "number"}, "b": {"type": "number"}}})", "tools")},
  });
  return kTools;
}

struct Golden {
  std::string_view tool_parser;
  std::string_view reasoning_parser;
  bool begins_in_reasoning;
  std::string_view text;
  std::string_view shown;
  bool is_whole = false;
  TextEnd end = TextEnd::natural;
  bool demands_calls = false;
};

/// The whole text, each pair of parts, and all bytes make the same of it.
inline void expect_golden(const Golden& golden) {
  const auto format = MessageFormat::make(golden.tool_parser, golden.reasoning_parser, "");
  ASSERT_TRUE(format) << format.error().message;
  const auto parsed = [&](const std::vector<std::string_view>& texts) {
    auto parser = format->parser({.tools = tools(),
                                  .begins_in_reasoning = golden.begins_in_reasoning,
                                  .demands_calls = golden.demands_calls,
                                  .is_whole = golden.is_whole});
    return testing::parsed(std::move(parser), texts, golden.end);
  };
  const std::string_view text = golden.text;
  const std::vector<MessagePiece> whole = parsed({text});
  EXPECT_EQ(shown(whole), golden.shown) << golden.tool_parser << (golden.is_whole ? " whole: " : ": ") << text;
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bytes.push_back(text.substr(i, 1));
    ASSERT_EQ(parsed({text.substr(0, i), text.substr(i)}), whole) << "cut at " << i << " of: " << text;
  }
  EXPECT_EQ(parsed(bytes), whole) << "byte by byte: " << text;
}

/// The same streamed and in one piece.
inline void expect_golden_twice(std::string_view tool_parser, std::string_view text, std::string_view shown) {
  for (const bool is_whole : {false, true})
    expect_golden({.tool_parser = tool_parser,
                   .reasoning_parser = "",
                   .begins_in_reasoning = false,
                   .text = text,
                   .shown = shown,
                   .is_whole = is_whole});
}

}  // namespace baton::parsers
