/// Joins pieces of one kind.
#include "parsers/call_writer.h"

#include "parsers/marker_scan.h"

namespace baton::parsers {

void CallWriter::append(MessagePiece::Kind kind, std::string_view text) {
  const std::int32_t call = kind == MessagePiece::Kind::arguments ? n_calls_ - 1 : 0;
  if (pieces_->size() > n_before_ && pieces_->back().kind == kind && pieces_->back().call == call)
    pieces_->back().text += text;
  else
    pieces_->push_back({.kind = kind, .call = call, .text = std::string(text)});
}

void CallWriter::content(char c) {
  constexpr std::size_t kMaxSpaces = 256;
  if (!has_content_) return;
  if (is_space(c) && spaces_.size() < kMaxSpaces) {
    spaces_ += c;
    return;
  }
  spaces_ += c;
  append(MessagePiece::Kind::content, spaces_);
  spaces_.clear();
}

/// The open call goes to the pieces, with the arguments so far.
void CallWriter::give_out() {
  is_given_out_ = true;
  spaces_.clear();
  held_.clear();
  call_.call = n_calls_++;
  pieces_->push_back(std::move(call_));
  if (!arguments_.empty()) append(MessagePiece::Kind::arguments, std::exchange(arguments_, {}));
}

bool CallWriter::open_call(std::string_view name, std::string_view id) {
  if (known_ != nullptr && known_->find(name) == nullptr) return false;
  call_ = {.kind = MessagePiece::Kind::call, .text = std::string(name), .id = std::string(id)};
  arguments_.clear();
  is_open_ = true;
  is_complete_ = false;
  is_given_out_ = false;
  if (form_ == Form::streamed || (form_ == Form::one && n_calls_ > 0)) give_out();
  return true;
}

void CallWriter::arguments(std::string_view json) {
  if (json.empty()) return;
  if (is_held_back())
    arguments_ += json;
  else
    append(MessagePiece::Kind::arguments, json);
}

void CallWriter::complete_arguments() {
  if (!is_given_out_) give_out();
  is_complete_ = true;
  append(MessagePiece::Kind::arguments, "");
  pieces_->back().is_complete = true;
}

void CallWriter::close_call() {
  if (!is_given_out_) give_out();
  is_open_ = false;
}

void CallWriter::break_call(std::string_view rest) {
  if (is_held_back()) {
    is_open_ = false;
    return;
  }
  close_call();
  hold(rest);
}

void CallWriter::hold(std::string_view text) {
  if (is_open_ && !is_held_back()) return;
  held_ += text;
  if (is_open_ && is_over_limit()) give_out();
}

void CallWriter::end() {
  if (n_calls_ == 0 && !spaces_.empty()) append(MessagePiece::Kind::content, spaces_);
  spaces_.clear();
}

}  // namespace baton::parsers
