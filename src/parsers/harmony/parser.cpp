/// Headers whole, contents byte by byte.
#include "parsers/harmony/parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

namespace baton::parsers::harmony {
namespace {

constexpr std::array<std::string_view, 3> kEnds{kEnd, kReturn, kCall};
constexpr std::string_view kBetween = "\n\n";  // two texts of one kind

/// Whether a text that was cut off may be a header and nothing else.
bool may_be_header(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \n");
  if (begin == std::string_view::npos) return false;
  const std::string_view word = text.substr(begin);
  return text.find("<|") != std::string_view::npos || text.ends_with('<') || word.starts_with("to=") ||
         std::string_view("assistant").starts_with(word) || word.starts_with("assistant to=");
}

}  // namespace

Parser::Parser(const Reading& reading) : reading_(reading), writer_(reading.form, reading.has_content) {
  if (reading_.begin == Begin::header) return;
  is_first_ = false;
  begin_message({.channel = std::string(reading_.begin == Begin::analysis ? kAnalysis : kFinal)});
}

void Parser::take(std::string_view text, std::vector<MessagePiece>& pieces) {
  pieces_ = &pieces;
  n_before_ = pieces.size();
  writer_.set_output(pieces);
  for (const char c : text) take_byte(c);
}

void Parser::take_byte(char c) {
  if (state_ == State::header) return take_header(c);
  if (c != '<' && scan_.is_empty()) return write(c);
  if (scan_.take(c, kEnds, [&](char text) { write(text); })) end_message(TextEnd::natural);
}

void Parser::take_header(char c) {
  header_ += c;
  if (c == '>') {
    const std::string_view text = header_;
    if (text.ends_with(kMessage)) {
      std::string_view front = text.substr(0, text.size() - kMessage.size());
      std::optional<Header> header;
      if (is_first_)
        header = read_header(front, /*has_role=*/true);
      else if (front.starts_with(kStart))
        header = read_header(front.substr(kStart.size()), /*has_role=*/false);
      return begin_message(header ? *header : mended_header(front));
    }
    const auto ended = std::find_if(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return text.ends_with(end); });
    if (ended != kEnds.end()) {
      header_.resize(header_.size() - ended->size());
      end_open_header(TextEnd::natural);
      return end_message(TextEnd::natural);
    }
  }
  if (header_.size() > kMaxHeader) end_open_header(TextEnd::natural);
}

/// A header without `<|message|>` is a message of which the text follows the channel at once. One that was cut off is nothing.
void Parser::end_open_header(TextEnd how) {
  if (how == TextEnd::cut && may_be_header(header_)) return;
  const Header header = read_open_header(header_);
  begin_message(header);
  for (const char c : header.text) write(c);
}

Parser::Kind Parser::kind_of(const Header& header) const {
  if (!header.is_assistant) return Kind::nothing;
  const bool is_function = header.recipient.starts_with(kFunctions) && header.recipient.size() > kFunctions.size();
  if (reading_.tools != nullptr && (is_function || reading_.tools->find(header.recipient) != nullptr)) return Kind::call;
  if (header.channel == kAnalysis && reading_.has_reasoning) return Kind::reasoning;
  return reading_.has_content ? Kind::content : Kind::nothing;
}

void Parser::begin_message(const Header& header) {
  kind_ = kind_of(header);
  if (kind_ == Kind::call) {
    name_ = header.recipient;
    if (name_.starts_with(kFunctions) && name_.size() > kFunctions.size()) name_.erase(0, kFunctions.size());
    scanner_.reset();
    arguments_ = Arguments::before;
  }
  is_message_empty_ = true;
  header_.clear();
  state_ = State::content;
}

void Parser::write(char c) {
  switch (kind_) {
    case Kind::nothing: return;
    case Kind::call: return write_argument(c);
    case Kind::content:
    case Kind::reasoning: return write_text(c);
  }
}

void Parser::write_text(char c) {
  const MessagePiece::Kind kind = kind_ == Kind::reasoning ? MessagePiece::Kind::reasoning : MessagePiece::Kind::content;
  if (pieces_->size() == n_before_ || pieces_->back().kind != kind) pieces_->push_back({.kind = kind});
  std::string& text = pieces_->back().text;
  bool& has_text = kind_ == Kind::reasoning ? has_reasoning_ : has_content_;
  if (std::exchange(is_message_empty_, false) && std::exchange(has_text, true)) text += kBetween;
  text += c;
}

/// The call begins with the bracket of its arguments, so that other text can still become content.
void Parser::write_argument(char c) {
  writer_.hold(std::string_view(&c, 1));
  if (arguments_ == Arguments::behind) return;
  if (arguments_ == Arguments::before) {
    if (is_space(c) && !writer_.is_over_limit()) return;
    if (c != '{') return break_call();
    arguments_ = Arguments::inside;
    writer_.open_call(name_, "");
  }
  const JsonScanner::Step step = scanner_.take(c);
  if (step == JsonScanner::Step::fault) return break_call();
  writer_.arguments(scanner_.written());
  if (step == JsonScanner::Step::inside) return;
  arguments_ = Arguments::behind;
  writer_.complete_arguments();
}

/// The message is not a call, and its text is content. After a call that has been given out nothing follows.
void Parser::break_call() {
  if (writer_.is_open()) writer_.break_call("");
  const std::string text = writer_.release_held();
  kind_ = text.empty() || !reading_.has_content ? Kind::nothing : Kind::content;
  for (const char c : text) write(c);
}

/// A call that was cut off is given out as far as it has come, and a name without arguments is nothing.
void Parser::end_call(TextEnd how) {
  if (arguments_ == Arguments::inside && how == TextEnd::natural) return break_call();
  if (arguments_ == Arguments::before && how == TextEnd::natural) {
    writer_.open_call(name_, "");
    writer_.arguments("{}");
    writer_.complete_arguments();
  }
  if (writer_.is_open()) writer_.close_call();
  writer_.drop_call();
}

void Parser::end_message(TextEnd how) {
  if (kind_ == Kind::call) end_call(how);
  state_ = State::header;
  is_first_ = false;
  header_.clear();
}

void Parser::end(TextEnd how, std::vector<MessagePiece>& pieces) {
  pieces_ = &pieces;
  n_before_ = pieces.size();
  writer_.set_output(pieces);
  if (state_ == State::header) end_open_header(how);
  if (state_ == State::header) return;
  for (const char c : scan_.release()) write(c);  // a marker is a token, which nothing cuts
  end_message(how);
}

}  // namespace baton::parsers::harmony
