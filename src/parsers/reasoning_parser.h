/// Splits the reasoning off the front of an answer, and the calls out of reasoning.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/call_reader.h"
#include "parsers/call_writer.h"
#include "parsers/marker_scan.h"
#include "parsers/message_parser.h"
#include "parsers/tool_index.h"

namespace baton::parsers {

/// Some models call tools before they have closed their reasoning. Text from a marker of calls on is held back as long as complete
/// calls of known tools may be the end of the answer; if anything but space follows them, they are reasoning. Up to
/// CallWriter::kMaxHeld bytes are held. Thread: one at a time.
class ReasonedCalls {
 public:
  /// `begin` and what it names must outlive it.
  ReasonedCalls(const CallBegin& begin, std::unique_ptr<CallReader> reader, std::shared_ptr<const ToolIndex> tools);
  ReasonedCalls(const ReasonedCalls&) = delete;
  ReasonedCalls& operator=(const ReasonedCalls&) = delete;

  const CallBegin& begin() const { return begin_; }
  /// Whether nothing is held back: a byte that begins no marker is reasoning.
  bool is_idle() const { return state_ == State::text && scan_.is_empty(); }
  /// Appends to `reasoning` what the byte makes certain.
  void take(char c, std::string& reasoning);
  /// The text has ended: the calls that it ends with.
  std::vector<MessagePiece> end(TextEnd how);
  /// What was held back, which is reasoning.
  std::string release();

 private:
  enum class State : std::uint8_t { text, calls, behind };
  void begin_calls(std::string_view marker);
  void take_text(char c, std::string& reasoning);
  void take_call(char c, std::string& reasoning);
  void give_up(std::string& reasoning);
  std::string forget_calls();

  const CallBegin begin_;
  const std::unique_ptr<CallReader> reader_;
  const std::shared_ptr<const ToolIndex> tools_;
  CallWriter writer_{CallWriter::Form::whole, /*has_content=*/false};
  MarkerScan scan_;
  State state_ = State::text;
  std::string held_;  // from the first marker of the calls
  std::vector<MessagePiece> calls_;
};

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
