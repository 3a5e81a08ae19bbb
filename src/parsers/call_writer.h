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
/// and after it is dropped, and all other text is kept.
class CallWriter {
 public:
  /// A call's text is held up to this size, in bytes.
  static constexpr std::size_t kMaxHeld = std::size_t{1} << 20;

  enum class Form : std::uint8_t {
    streamed,  ///< a call is given out as it comes
    whole,     ///< a call is given out when its arguments are complete, up to kMaxHeld
    one,       ///< the first call is whole, and the others are streamed, because they end the answer
  };
  /// `has_content`: other text than calls is content; otherwise it is dropped.
  CallWriter(Form form, bool has_content) : form_(form), has_content_(has_content) {}

  /// Only calls of these are accepted from now on; null: any.
  void set_known(const ToolIndex* known) { known_ = known; }
  /// Where pieces go from now on; neighbours of one kind are joined from here on.
  void set_output(std::vector<MessagePiece>& pieces) {
    pieces_ = &pieces;
    n_before_ = pieces.size();
  }

  void content(char c);
  /// Begins a call; if streamed, forgets the held text. false: it is not of a known tool, nothing changes.
  bool open_call(std::string_view name, std::string_view id);
  /// Of the open call.
  void arguments(std::string_view json);
  /// The arguments of the open call are complete.
  void complete_arguments();
  /// The open call is given out, as far as it has come.
  void close_call();
  /// The open call continues with a mistake. It is closed, and `rest`, which is not written of it, is held; one that is
  /// whole and not complete is not a call, and its text stays held.
  void break_call(std::string_view rest);
  bool is_open() const { return is_open_; }
  /// Whether there are calls, and their arguments are complete.
  bool is_complete() const { return is_complete_; }
  std::int32_t n_calls() const { return n_calls_; }

  /// Text that is content if no call comes of it; ignored inside of an open call that is streamed.
  void hold(std::string_view text);
  bool is_over_limit() const { return held_.size() > kMaxHeld; }
  const std::string& held() const { return held_; }
  /// The held text is a call, of which nothing is given out.
  void drop_call() {
    held_.clear();
    spaces_.clear();
  }
  /// The held text, which is forgotten.
  std::string release_held() { return std::exchange(held_, {}); }
  /// No more text.
  void end();

 private:
  void append(MessagePiece::Kind kind, std::string_view text);
  void give_out();
  bool is_held_back() const { return is_open_ && !is_given_out_; }

  const Form form_;
  const bool has_content_;
  const ToolIndex* known_ = nullptr;
  std::vector<MessagePiece>* pieces_ = nullptr;
  std::size_t n_before_ = 0;
  std::int32_t n_calls_ = 0;
  bool is_open_ = false;
  bool is_complete_ = false;   // the arguments of the last call
  bool is_given_out_ = false;  // the open call, which is whole
  MessagePiece call_;          // the open call and its arguments, if they are not given out
  std::string arguments_;
  std::string held_;
  std::string spaces_;  // after the content so far
};

}  // namespace baton::parsers
