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
  if (is_space(c) && spaces_.size() < kMaxSpaces) {
    spaces_ += c;
    return;
  }
  spaces_ += c;
  append(MessagePiece::Kind::content, spaces_);
  spaces_.clear();
}

bool CallWriter::open_call(std::string_view name, std::string_view id) {
  if (known_ != nullptr && known_->find(name) == nullptr) return false;
  held_.clear();
  spaces_.clear();
  is_open_ = true;
  pieces_->push_back({.kind = MessagePiece::Kind::call, .call = n_calls_++, .text = std::string(name), .id = std::string(id)});
  return true;
}

void CallWriter::arguments(std::string_view json) {
  if (!json.empty()) append(MessagePiece::Kind::arguments, json);
}

void CallWriter::end() {
  if (n_calls_ == 0 && !spaces_.empty()) append(MessagePiece::Kind::content, spaces_);
  spaces_.clear();
}

}  // namespace baton::parsers
