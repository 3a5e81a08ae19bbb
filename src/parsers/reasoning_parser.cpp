/// Reasoning is what stands in front of a closing marker.
#include "parsers/reasoning_parser.h"

#include <algorithm>
#include <utility>

namespace baton::parsers {
namespace {

std::string_view without_front_spaces(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

}  // namespace

ReasonedCalls::ReasonedCalls(const CallBegin& begin, std::unique_ptr<CallReader> reader, std::shared_ptr<const ToolIndex> tools)
    : begin_(begin), reader_(std::move(reader)), tools_(std::move(tools)) {
  writer_.set_known(tools_.get());
  writer_.set_output(calls_);
}

void ReasonedCalls::begin_calls(std::string_view marker) {
  held_ += marker;
  writer_.release_held();
  reader_->begin(marker);
  state_ = State::calls;
}

/// Text outside of calls. After calls space is held back with them.
void ReasonedCalls::take_text(char c, std::string& reasoning) {
  const auto marker = scan_.take(c, begin_.markers, [&](char text) {
    if (state_ == State::behind && !is_space(text)) reasoning += forget_calls();
    (state_ == State::behind ? held_ : reasoning) += text;
  });
  if (marker) begin_calls(*marker);
}

void ReasonedCalls::take_call(char c, std::string& reasoning) {
  held_ += c;
  writer_.hold(std::string_view(&c, 1));
  const CallStep step = reader_->take(c, writer_);
  if (step == CallStep::done) state_ = State::behind;
  if (step == CallStep::fault || held_.size() > CallWriter::kMaxHeld) give_up(reasoning);
}

/// What is held is reasoning, but its end may begin calls.
void ReasonedCalls::give_up(std::string& reasoning) {
  const std::string text = release();
  const std::size_t first = std::max<std::size_t>(1, text.size() - std::min(text.size(), begin_.longest_marker()));
  reasoning += text.substr(0, first);
  for (const char c : text.substr(first)) take(c, reasoning);
}

void ReasonedCalls::take(char c, std::string& reasoning) {
  if (state_ == State::calls)
    take_call(c, reasoning);
  else
    take_text(c, reasoning);
}

std::string ReasonedCalls::forget_calls() {
  state_ = State::text;
  if (writer_.is_open()) writer_.break_call("");
  writer_.release_held();
  calls_.clear();
  writer_.set_output(calls_);
  return std::exchange(held_, {});
}

std::string ReasonedCalls::release() { return forget_calls() + scan_.release(); }

std::vector<MessagePiece> ReasonedCalls::end(TextEnd how) {
  if (state_ == State::calls) {
    reader_->end(how, writer_);
    const auto is_no_space = [](char c) { return !is_space(c); };
    if (writer_.is_open() || std::any_of(writer_.held().begin(), writer_.held().end(), is_no_space)) return {};
  }
  if (!scan_.is_empty() || calls_.empty()) return {};
  const std::int32_t n_forgotten = calls_.front().call;
  for (MessagePiece& piece : calls_) piece.call -= n_forgotten;
  return std::move(calls_);
}

ReasoningParser::ReasoningParser(const ReasoningMarkers& markers, std::unique_ptr<MessageParser> rest,
                                 std::unique_ptr<ReasonedCalls> calls, bool begins_inside)
    : markers_(markers), rest_(std::move(rest)), calls_(std::move(calls)), begins_inside_(begins_inside) {
  first_bytes_.add(markers_.closes);
  if (calls_ != nullptr) first_bytes_.add(calls_->begin().markers);
}

void ReasoningParser::take(std::string_view text, std::vector<MessagePiece>& pieces) {
  for (const char c : text) {
    if (state_ == State::answer)
      content_ += c;
    else
      take_byte(c);
  }
  flush(pieces);
}

void ReasoningParser::flush(std::vector<MessagePiece>& pieces) {
  if (!reasoning_.empty()) pieces.push_back({.kind = MessagePiece::Kind::reasoning, .text = std::exchange(reasoning_, {})});
  if (!content_.empty()) rest_->take(std::exchange(content_, {}), pieces);
}

void ReasoningParser::take_reasoning(char c) {
  constexpr std::size_t kMaxSpaces = 256;
  if (is_space(c) && (is_empty_ || spaces_.size() < kMaxSpaces)) {
    if (!is_empty_) spaces_ += c;
    return;
  }
  is_empty_ = false;
  if (!spaces_.empty()) reasoning_ += spaces_;
  spaces_.clear();
  reasoning_ += c;
}

/// Reasoning that is not part of the closing marker.
void ReasoningParser::take_unmarked(char c) {
  if (calls_ == nullptr) return take_reasoning(c);
  unmarked_.clear();
  calls_->take(c, unmarked_);
  for (const char text : unmarked_) take_reasoning(text);
}

void ReasoningParser::take_inside(char c) {
  const bool is_text = !first_bytes_.has(c) && scan_.is_empty() && (calls_ == nullptr || calls_->is_idle());
  if (is_text) return take_reasoning(c);
  if (!scan_.take(c, markers_.closes, [&](char text) { take_unmarked(text); })) return;
  if (calls_ != nullptr)
    for (const char text : calls_->release()) take_reasoning(text);
  spaces_.clear();
  state_ = State::behind;
}

/// Nothing has closed the reasoning: the calls at its end, or the text that was held back.
void ReasoningParser::end_inside(TextEnd how, std::vector<MessagePiece>& calls) {
  for (const char c : scan_.release()) take_unmarked(c);
  if (calls_ == nullptr) return;
  calls = calls_->end(how);
  if (calls.empty())
    for (const char c : calls_->release()) take_reasoning(c);
}

void ReasoningParser::take_byte(char c) {
  switch (state_) {
    case State::before: {
      held_ += c;
      const std::string_view text = without_front_spaces(held_);
      const auto is_text = [&](std::string_view marker) { return marker == text; };
      if (!text.empty() && std::any_of(markers_.opens.begin(), markers_.opens.end(), is_text)) {
        held_.clear();
        state_ = State::inside;
      } else if (!begins_inside_ && !text.empty() && text == markers_.answer_open) {
        held_.clear();
        state_ = State::wrapped;
      } else if (held_.size() > kMaxHeldSpaces ||
                 !(begins_marker(markers_.opens, text) || (!begins_inside_ && markers_.answer_open.starts_with(text)))) {
        state_ = begins_inside_ ? State::inside : State::answer;
        for (const char held : std::exchange(held_, {})) {
          if (begins_inside_)
            take_inside(held);
          else
            content_ += held;
        }
      }
      return;
    }
    case State::inside: take_inside(c); return;
    case State::behind: {
      held_ += c;
      const std::string_view text = without_front_spaces(held_);
      if (text.empty()) {
        held_.clear();
      } else if (!markers_.answer_open.empty() && text == markers_.answer_open) {
        held_.clear();
        state_ = State::wrapped;
      } else if (!markers_.answer_open.starts_with(text)) {
        content_ += text;
        held_.clear();
        state_ = State::answer;
      }
      return;
    }
    case State::wrapped: {
      const std::span<const std::string_view> close(&markers_.answer_close, 1);
      if (scan_.take(c, close, [&](char text) { content_ += text; })) state_ = State::behind;
      return;
    }
    case State::answer: content_ += c;
  }
}

void ReasoningParser::end(TextEnd how, std::vector<MessagePiece>& pieces) {
  std::vector<MessagePiece> calls;
  if (state_ == State::before) {
    (begins_inside_ ? reasoning_ : content_) += begins_inside_ ? without_front_spaces(held_) : held_;
  } else if (state_ == State::inside) {
    end_inside(how, calls);
  } else {
    content_ += held_;
    content_ += scan_.release();
  }
  flush(pieces);
  pieces.insert(pieces.end(), calls.begin(), calls.end());
  rest_->end(how, pieces);
}

}  // namespace baton::parsers
