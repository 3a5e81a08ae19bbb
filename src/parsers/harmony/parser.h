/// Reads answers in harmony.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/call_writer.h"
#include "parsers/harmony/header.h"
#include "parsers/json_scanner.h"
#include "parsers/marker_scan.h"
#include "parsers/message_parser.h"
#include "parsers/tool_index.h"

namespace baton::parsers::harmony {

/// Where an answer begins: what the prompt has left open.
enum class Begin : std::uint8_t { header, analysis, final };

struct Reading {
  std::shared_ptr<const ToolIndex> tools = {};  ///< null: what looks like a call is content
  bool has_reasoning = true;                    ///< false: analysis is content
  bool has_content = true;                      ///< false: calls are demanded, and other text is no content
  CallWriter::Form form = CallWriter::Form::streamed;
  Begin begin = Begin::header;
};

/// Messages one after another. Analysis is reasoning, messages to functions are calls, what others than the assistant say is nothing,
/// and everything else is content. A blank line stands between the contents of two messages, and so it is with reasoning. The
/// arguments of a call are mended JSON, and none at all are an empty object; after a mistake nothing follows. Where messages do not
/// follow each other as they should, the next header is looked for.
class Parser : public MessageParser {
 public:
  explicit Parser(const Reading& reading);
  void take(std::string_view text, std::vector<MessagePiece>& pieces) override;
  void end(TextEnd how, std::vector<MessagePiece>& pieces) override;

 private:
  enum class State : std::uint8_t { header, content };
  enum class Kind : std::uint8_t { nothing, content, reasoning, call };

  void take_byte(char c);
  void take_header(char c);
  void end_open_header(TextEnd how);
  void begin_message(const Header& header);
  void end_message(TextEnd how);
  Kind kind_of(const Header& header) const;
  void write(char c);
  void write_text(char c);
  void write_argument(char c);
  void break_call();
  void end_call(TextEnd how);

  const Reading reading_;
  std::vector<MessagePiece>* pieces_ = nullptr;
  std::size_t n_before_ = 0;  // pieces of earlier calls of take
  CallWriter writer_;
  State state_ = State::header;
  bool is_first_ = true;  // the header, whose role the prompt has written
  std::string header_;
  MarkerScan scan_;  // of the ends of a message
  Kind kind_ = Kind::content;
  bool is_message_empty_ = true;
  bool has_content_ = false;    // in front of the message
  bool has_reasoning_ = false;  // likewise
  // Of a call.
  std::string name_;
  JsonScanner scanner_{JsonScanner::Form::mended};
  enum class Arguments : std::uint8_t { before, inside, behind };
  Arguments arguments_ = Arguments::before;
};

}  // namespace baton::parsers::harmony
