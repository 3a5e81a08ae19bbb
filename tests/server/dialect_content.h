/// The content of an answer that a test writes as text, with tool calls and reasoning.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/message_format.h"
#include "server/answer/writer.h"
#include "server/byte_model.h"
#include "support/tool_index.h"

namespace baton {

/// One answer of a model that writes calls as Hermes does and reasoning as Qwen does, or in another format. It belongs to one writer.
class DialectContent {
 public:
  explicit DialectContent(std::string_view tool_parser = "hermes", std::string_view reasoning_parser = "qwen3")
      : format_(make_format(tool_parser, reasoning_parser)) {
    content.header = {true, "id-1", 1700, "demo", "baton-0"};
    content.prompts = {{std::vector<TokenId>(40, 65), {}}};
    content.scores.resize(1);
    content.request.reading.format = &format_;
    content.request.reading.tools = testing::index_of({{.name = "look"}});
    begin_again();
  }
  DialectContent(const DialectContent&) = delete;
  DialectContent& operator=(const DialectContent&) = delete;

  /// A choice of the request as it is now.
  void begin_again() {
    content.choices.clear();
    content.choices.emplace_back(content.request, content.prompts[0], tokenizer);
  }
  AnswerChoice& choice() { return content.choices[0]; }
  /// The choice's next event.
  void says(std::string_view text) { choice().take(event(text)); }
  void ends(std::string_view text, FinishReason reason) {
    Event last = event(text);
    last.finished = reason;
    last.stats.completion_tokens = choice().n_tokens() + static_cast<std::int32_t>(text.size());
    choice().take(last);
  }

  const Tokenizer tokenizer = byte_tokenizer();
  AnswerContent content;

 private:
  static parsers::MessageFormat make_format(std::string_view tool_parser, std::string_view reasoning_parser) {
    auto made = parsers::MessageFormat::make(tool_parser, reasoning_parser, "");
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made ? std::move(*made) : parsers::MessageFormat();
  }
  static Event event(std::string_view text) {
    Event event;
    for (const char byte : text) event.tokens.push_back({static_cast<unsigned char>(byte), -0.5f, {}});
    event.stats.cached_tokens = 16;
    return event;
  }

  const parsers::MessageFormat format_;
};

inline constexpr std::string_view kLookCall =
    "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": [1, 2]}}\n</tool_call>";

/// A frame with a name.
struct NamedFrame {
  std::string event;
  json::Value data;
};

/// The frames of a stream, each "event: NAME" and "data: {...}".
inline std::vector<NamedFrame> named_frames(std::string_view frames) {
  std::vector<NamedFrame> found;
  for (std::size_t end; (end = frames.find("\n\n")) != std::string_view::npos; frames.remove_prefix(end + 2)) {
    const std::string_view frame = frames.substr(0, end);
    const std::size_t line = frame.find("\ndata: ");
    EXPECT_TRUE(frame.starts_with("event: ") && line != std::string_view::npos) << frame;
    if (line == std::string_view::npos) return found;
    found.push_back({std::string(frame.substr(7, line - 7)), parsed(frame.substr(line + 7))});
    EXPECT_EQ(found.back().event, found.back().data["type"].get<std::string>());
  }
  EXPECT_EQ(frames, "") << "a frame that is not whole";
  return found;
}

inline std::string body_of(AnswerWriter& writer) {
  std::string body;
  writer.write_response(body).finish();
  return body;
}

}  // namespace baton
