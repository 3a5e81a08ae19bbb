/// Splits an answer into content and calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "parsers/call_reader.h"
#include "parsers/call_writer.h"
#include "parsers/marker_scan.h"
#include "parsers/message_parser.h"

namespace baton::parsers {

/// What text that is not a call means.
enum class TextMeaning : std::uint8_t {
  content,
  content_or_calls,  ///< text that does not begin with a call is content as a whole
  nothing,           ///< calls are demanded
};

class ToolCallParser : public MessageParser {
 public:
  /// `begin` and what it names must outlive it. Without a marker only calls of `tools` are calls, because any JSON
  /// may be content.
  ToolCallParser(const CallBegin& begin, std::unique_ptr<CallReader> reader, std::shared_ptr<const ToolIndex> tools,
                 CallWriter::Form form, TextMeaning text);
  void take(std::string_view text, std::vector<MessagePiece>& pieces) override;
  void end(TextEnd how, std::vector<MessagePiece>& pieces) override;

 private:
  void take_byte(char c);
  void take_text(char c);
  void take_content(char c);
  void begin_calls(std::string_view marker);
  void take_call(char c);
  void give_up();
  void end_calls(TextEnd how);
  bool is_begun_call() const;

  const CallBegin begin_;
  const std::unique_ptr<CallReader> reader_;
  const std::shared_ptr<const ToolIndex> tools_;
  const bool has_calls_first_;
  const std::size_t longest_marker_;
  FirstBytes first_bytes_;  // of the markers
  CallWriter writer_;
  MarkerScan scan_;
  std::int32_t n_calls_before_ = 0;  // the marker that is_reading_calls_ began with
  bool is_reading_calls_ = false;
  bool has_marker_ = false;  // in front of them
  bool is_at_start_ = true;
  bool is_content_ = false;  // no call will come
};

}  // namespace baton::parsers
