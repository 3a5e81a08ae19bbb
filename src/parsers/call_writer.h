/// Pieces of a message: content and calls, and the text that is held until it is one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parsers/message_parser.h"
#include "parsers/tool_index.h"

namespace baton::parsers {

/// Writes content and calls as pieces. Text is held as long as it may turn out to be no call. Space in front of a call
/// and behind it is dropped, and all other text is kept.
class CallWriter {
 public:
  /// A call's text is held up to this size, in bytes.
  static constexpr std::size_t kMaxHeld = std::size_t{1} << 20;

  /// Only calls of these are accepted from now on; null: any.
  void set_known(const ToolIndex* known) { known_ = known; }
  /// Where pieces go from now on; neighbours of one kind are joined from here on.
  void set_output(std::vector<MessagePiece>& pieces) {
    pieces_ = &pieces;
    n_before_ = pieces.size();
  }

  void content(char c);
  /// Begins a call and forgets the held text. false: it is not of a known tool, nothing changes.
  bool open_call(std::string_view name, std::string_view id);
  /// Of the open call.
  void arguments(std::string_view json);
  void close_call() { is_open_ = false; }
  bool is_open() const { return is_open_; }
  std::int32_t n_calls() const { return n_calls_; }

  /// Text that is content if no call comes of it; ignored inside of an open call.
  void hold(std::string_view text) {
    if (!is_open_) held_ += text;
  }
  bool is_over_limit() const { return held_.size() > kMaxHeld; }
  /// The held text, which is forgotten.
  std::string release_held() { return std::exchange(held_, {}); }
  /// No more text.
  void end();

 private:
  void append(MessagePiece::Kind kind, std::string_view text);

  const ToolIndex* known_ = nullptr;
  std::vector<MessagePiece>* pieces_ = nullptr;
  std::size_t n_before_ = 0;
  std::int32_t n_calls_ = 0;
  bool is_open_ = false;
  std::string held_;
  std::string spaces_;  // behind the content so far
};

}  // namespace baton::parsers
