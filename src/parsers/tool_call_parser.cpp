/// Free text, and calls at its markers.
#include "parsers/tool_call_parser.h"

#include <algorithm>
#include <utility>

namespace baton::parsers {

ToolCallParser::ToolCallParser(const CallBegin& begin, std::unique_ptr<CallReader> reader,
                               std::shared_ptr<const ToolIndex> tools, CallWriter::Form form, TextMeaning text)
    : begin_(begin),
      reader_(std::move(reader)),
      tools_(std::move(tools)),
      has_calls_first_(text == TextMeaning::content_or_calls),
      longest_marker_(begin.longest_marker()),
      writer_(form, /*has_content=*/text != TextMeaning::nothing) {
  first_bytes_.add(begin_.markers);
}

void ToolCallParser::take(std::string_view text, std::vector<MessagePiece>& pieces) {
  writer_.set_output(pieces);
  for (const char c : text) take_byte(c);
}

void ToolCallParser::take_byte(char c) {
  if (is_reading_calls_)
    take_call(c);
  else
    take_text(c);
}

void ToolCallParser::begin_calls(std::string_view marker) {
  is_at_start_ = false;
  is_reading_calls_ = true;
  has_marker_ = !marker.empty();
  n_calls_before_ = writer_.n_calls();
  writer_.set_known(marker.empty() ? tools_.get() : nullptr);
  writer_.hold(marker);
  reader_->begin(marker);
}

void ToolCallParser::take_content(char c) {
  writer_.content(c);
  if (has_calls_first_ && writer_.n_calls() == 0 && !is_space(c)) is_content_ = true;
}

void ToolCallParser::take_text(char c) {
  if (is_content_) return writer_.content(c);
  if (is_at_start_ && begin_.first.find(c) != std::string_view::npos) {
    begin_calls("");
    take_call(c);
    return;
  }
  if (!is_space(c)) is_at_start_ = false;
  if (!first_bytes_.has(c) && scan_.is_empty()) return take_content(c);
  const auto marker = scan_.take(c, begin_.markers, [&](char text) { take_content(text); });
  if (is_content_)
    for (const char held : marker ? std::string(*marker) : scan_.release()) writer_.content(held);
  else if (marker)
    begin_calls(*marker);
}

void ToolCallParser::take_call(char c) {
  writer_.hold(std::string_view(&c, 1));
  switch (reader_->take(c, writer_)) {
    case CallStep::more:
      if (writer_.is_over_limit()) give_up();
      return;
    case CallStep::done:
      writer_.release_held();
      is_reading_calls_ = false;
      return;
    case CallStep::fault:
      if (writer_.is_open()) writer_.break_call(std::string_view(&c, 1));
      give_up();
  }
}

/// What is held was no call. Its end may begin the next one; the marker that it begins with, if no call came of it, is
/// content.
void ToolCallParser::give_up() {
  is_reading_calls_ = false;
  is_content_ = has_calls_first_ && writer_.n_calls() == 0;
  const std::string text = writer_.release_held();
  const std::size_t least = writer_.n_calls() == n_calls_before_ ? 1 : 0;
  const std::size_t first = std::max(least, text.size() - std::min(text.size(), longest_marker_));
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i < first)
      writer_.content(text[i]);
    else
      take_byte(text[i]);
  }
}

/// Whether the held text cannot be anything but a call: it has a marker, or is after another call, or has the name of a
/// tool.
bool ToolCallParser::is_begun_call() const {
  if (has_marker_ || writer_.n_calls() > n_calls_before_) return true;
  const std::string_view name = reader_->begun_name();
  return !name.empty() && tools_ != nullptr && tools_->has_name_with(name);
}

/// The text has ended in calls, or in front of one. What the model has ended itself is content if it is not a whole
/// call. What was cut is a call that was begun: its arguments are given out as far as they have come, and a name
/// without arguments is nothing.
void ToolCallParser::end_calls(TextEnd how) {
  reader_->end(how, writer_);
  if (how == TextEnd::natural) {
    if (writer_.is_open()) writer_.break_call("");
    return;
  }
  if (writer_.is_open())
    writer_.close_call();
  else if (is_begun_call())
    writer_.drop_call();
}

void ToolCallParser::end(TextEnd how, std::vector<MessagePiece>& pieces) {
  writer_.set_output(pieces);
  if (is_reading_calls_) end_calls(how);
  for (const char c : writer_.release_held()) writer_.content(c);
  const std::string marker = scan_.release();
  const auto is_half_of = [&](std::string_view whole) { return whole.starts_with(marker) && 2 * marker.size() > whole.size(); };
  const bool is_cut_marker = how == TextEnd::cut && std::any_of(begin_.markers.begin(), begin_.markers.end(), is_half_of);
  if (is_cut_marker) writer_.drop_call();
  for (const char c : is_cut_marker ? std::string() : marker) writer_.content(c);
  writer_.end();
}

}  // namespace baton::parsers
