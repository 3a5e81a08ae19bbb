/// Splits the body into events and events into frames, and checks each frame.
#include "bench/stream/stream_check.h"

#include <algorithm>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::size_t kShown = 300;

std::string_view text_of(const json::Value* value) {
  return value != nullptr && value->is_string() ? std::string_view(value->get_ref<const std::string&>()) : std::string_view();
}

std::int64_t integer_of(const json::Value* value) {
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : -1;
}

}  // namespace

void StreamCheck::blame(std::string fault) {
  if (fault_.empty()) fault_ = std::move(fault);
}

std::int64_t StreamCheck::push(const HttpHead& head, std::string_view bytes) {
  const std::int64_t before = n_frames_;
  if (head.status != 200)
    refusal_.append(bytes.substr(0, kShown - std::min(kShown, refusal_.size())));
  else if (fault_.empty() && is_stream_of_chunks(head))
    take_events(bytes);
  return n_frames_ - before;
}

void StreamCheck::finish(const HttpHead& head) {
  if (head.status != 200)
    blame(fmt::format("{}: {}", head.status_line, refusal_));
  else if (!is_stream_of_chunks(head) || phase_ != Phase::over || !events_.empty())
    blame("the stream ended before [DONE]");
}

bool StreamCheck::is_stream_of_chunks(const HttpHead& head) {
  if (!head.is_chunked) blame("the answer is not sent in chunks");
  if (!head.content_type.starts_with("text/event-stream")) blame("the answer is not an event stream");
  return fault_.empty();
}

void StreamCheck::take_events(std::string_view bytes) {
  std::string joined;
  if (!events_.empty()) {
    joined = std::move(events_) + std::string(bytes);
    bytes = joined;
  }
  for (std::size_t end; fault_.empty() && (end = bytes.find("\n\n")) != std::string_view::npos; bytes.remove_prefix(end + 2)) {
    const std::string_view event = bytes.substr(0, end);
    if (!event.starts_with("data: ") || event.find('\n') != std::string_view::npos)
      return blame(fmt::format("no event of one data line: {}", event.substr(0, kShown)));
    take_data(event.substr(6));
  }
  events_ = bytes;
}

void StreamCheck::take_data(std::string_view data) {
  if (phase_ == Phase::over) return blame(fmt::format("after [DONE] comes {}", data.substr(0, kShown)));
  if (data == "[DONE]") {
    if (phase_ != Phase::mark) blame("[DONE] comes before the finish reason or the usage");
    phase_ = Phase::over;
    return;
  }
  const auto frame = json::parse(data, "a frame");
  if (!frame) return blame(frame.error().message);
  take_frame(*frame);
  if (!fault_.empty()) fault_ += fmt::format(": {}", data.substr(0, kShown));
}

void StreamCheck::take_frame(const json::Value& frame) {
  if (const json::Value* error = json::find(frame, "error")) return blame("error " + json::dump(*error));
  const std::string_view id = text_of(json::find(frame, "id"));
  const std::string_view model = text_of(json::find(frame, "model"));
  if (id_.empty()) {
    id_ = id;
    model_ = model;
  }
  if (id.empty() || id != id_ || model != model_) return blame("a frame of another id or model");
  const std::string_view object = expected_.is_chat ? "chat.completion.chunk" : "text_completion";
  if (text_of(json::find(frame, "object")) != object) return blame("a frame of another object");
  const json::Value* choices = json::find(frame, "choices");
  if (choices == nullptr || !choices->is_array() || choices->size() > 1) return blame("a frame without its choice");
  if (choices->empty()) return take_usage(frame);
  if (integer_of(json::find((*choices)[0], "index")) != 0) return blame("a choice of another index");
  take_choice((*choices)[0]);
}

void StreamCheck::take_choice(const json::Value& choice) {
  if (phase_ > Phase::text) return blame("a choice after its finish reason");
  std::string_view text = text_of(json::find(choice, "text"));
  if (expected_.is_chat) {
    const json::Value* delta = json::find(choice, "delta");
    const bool has_role = delta != nullptr && json::find(*delta, "role") != nullptr;
    if (has_role != (phase_ == Phase::role)) return blame(has_role ? "the role twice" : "text before the role");
    if (delta != nullptr) text = text_of(json::find(*delta, "content"));
  }
  phase_ = Phase::text;
  const json::Value* ids = json::find(choice, "token_ids");
  const auto n_ids = static_cast<std::int64_t>(ids != nullptr && ids->is_array() ? ids->size() : 0);
  n_tokens_ += n_ids;
  if (!text.empty() || n_ids > 0) ++n_frames_;
  finish_reason_ = text_of(json::find(choice, "finish_reason"));
  if (finish_reason_ == "error" || finish_reason_ == "abort") blame("the server ended the answer");
  if (!finish_reason_.empty()) phase_ = Phase::usage;
}

void StreamCheck::take_usage(const json::Value& frame) {
  if (phase_ != Phase::usage) return blame("the usage comes before the finish reason");
  phase_ = Phase::mark;
  const json::Value* usage = json::find(frame, "usage");
  const std::int64_t n_completion = usage == nullptr ? -1 : integer_of(json::find(*usage, "completion_tokens"));
  if (n_completion < 0) return blame("a usage without completion_tokens");
  if (!expected_.has_ids) {
    n_tokens_ = n_completion;
    if (n_frames_ > n_completion + 1) blame(fmt::format("{} frames with text for {} tokens", n_frames_, n_completion));
    return;
  }
  n_lost_ = n_completion - n_tokens_;
  if (n_lost_ != 0) blame(fmt::format("{} tokens came, and the usage says {}", n_tokens_, n_completion));
}

}  // namespace baton
