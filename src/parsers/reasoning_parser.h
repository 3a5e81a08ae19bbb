/// Splits the reasoning off the front of an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/marker_scan.h"
#include "parsers/message_parser.h"
#include "parsers/reasoned_calls.h"

namespace baton::parsers {

/// The texts around reasoning, and around the answer after it.
struct ReasoningMarkers {
  std::span<const std::string_view> opens;   ///< only as the first text of an answer
  std::span<const std::string_view> closes;  ///< the first is the one that most answers have
  std::string_view answer_open = "";         ///< may stand in front of the rest; "": never
  std::string_view answer_close = "";
};

/// Space around the reasoning is dropped. Reasoning that is not closed goes to the end, or to the calls that it ends
/// with.
class ReasoningParser : public MessageParser {
 public:
  /// `markers` and what it names must outlive it. `rest` parses the text after the reasoning. `begins_inside`: the
  /// prompt has opened the reasoning; an opening marker is skipped then, if there is one. `calls` finds calls that end
  /// reasoning; null: none do.
  ReasoningParser(const ReasoningMarkers& markers, std::unique_ptr<MessageParser> rest, std::unique_ptr<ReasonedCalls> calls,
                  bool begins_inside);
  void take(std::string_view text, std::vector<MessagePiece>& pieces) override;
  void end(TextEnd how, std::vector<MessagePiece>& pieces) override;

 private:
  static constexpr std::size_t kMaxHeldSpaces = 256;
  enum class State : std::uint8_t { before, inside, behind, answer, wrapped };
  void take_byte(char c);
  void take_inside(char c);
  void take_unmarked(char c);
  void end_inside(TextEnd how, std::vector<MessagePiece>& calls);
  void take_reasoning(char c);
  void flush(std::vector<MessagePiece>& pieces);

  const ReasoningMarkers markers_;
  const std::unique_ptr<MessageParser> rest_;
  const std::unique_ptr<ReasonedCalls> calls_;
  const bool begins_inside_;
  FirstBytes first_bytes_;  // of the markers in reasoning
  State state_ = State::before;
  MarkerScan scan_;
  std::string held_;       // of before and after
  std::string spaces_;     // after the reasoning so far
  bool is_empty_ = true;   // no reasoning but space so far
  std::string unmarked_;   // reasoning that is in no call for certain
  std::string reasoning_;  // to be returned by this call
  std::string content_;    // to be given to rest_ by this call
};

}  // namespace baton::parsers
