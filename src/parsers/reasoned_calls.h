/// Calls at the end of reasoning that nothing has closed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/call_reader.h"
#include "parsers/call_writer.h"
#include "parsers/marker_scan.h"
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

}  // namespace baton::parsers
