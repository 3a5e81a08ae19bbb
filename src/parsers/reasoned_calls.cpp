/// Reads what may be calls, and forgets it if reasoning follows.
#include "parsers/reasoned_calls.h"

#include <algorithm>
#include <utility>

namespace baton::parsers {

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

/// Their text.
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

}  // namespace baton::parsers
