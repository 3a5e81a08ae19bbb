/// Splits an answer into content and calls.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "parsers/call_reader.h"
#include "parsers/marker_scan.h"
#include "parsers/message_parser.h"

namespace baton::parsers {

/// Where calls begin.
struct CallBegin {
  std::span<const std::string_view> markers;  ///< texts that begin calls anywhere
  std::string_view first;                     ///< bytes that begin calls as the first of the answer
};

class ToolCallParser : public MessageParser {
 public:
  /// `begin` and what it names must outlive it. Without a marker only calls of `tools` are calls, because any JSON
  /// may be content. `has_calls_first`: text that does not begin with a call is content as a whole.
  ToolCallParser(const CallBegin& begin, std::unique_ptr<CallReader> reader, std::shared_ptr<const ToolIndex> tools,
                 bool has_calls_first);
  void take(std::string_view text, std::vector<MessagePiece>& pieces) override;
  void end(std::vector<MessagePiece>& pieces) override;

 private:
  void take_byte(char c);
  void take_text(char c);
  void take_content(char c);
  void begin_calls(std::string_view marker);
  void take_call(char c);
  void give_up();

  const CallBegin begin_;
  const std::unique_ptr<CallReader> reader_;
  const std::shared_ptr<const ToolIndex> tools_;
  const bool has_calls_first_;
  std::size_t longest_marker_ = 0;
  CallWriter writer_;
  MarkerScan scan_;
  std::int32_t n_calls_before_ = 0;  // the marker that is_reading_calls_ began with
  bool is_reading_calls_ = false;
  bool is_at_start_ = true;
  bool is_content_ = false;  // no call will come
};

}  // namespace baton::parsers
