/// Frames of several servers.
#include "bench/http/completion_stream.h"

namespace baton {
namespace {

constexpr std::size_t kShownBytes = 300;

const json::Value* found(const json::Value* object, std::string_view key) {
  const json::Value* const value = object == nullptr ? nullptr : json::find(*object, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string_view string_or_empty(const json::Value* value) {
  return value != nullptr && value->is_string() ? std::string_view(value->get_ref<const std::string&>()) : std::string_view();
}

std::optional<std::int64_t> count_of(const json::Value* value) {
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<std::int64_t>();
}

std::string message_of(const json::Value& body) {
  for (const std::string_view key : {"error", "message", "detail"}) {
    const json::Value* const value = found(&body, key);
    if (value == nullptr) continue;
    if (value->is_string()) return value->get<std::string>();
    if (value->is_object() && found(value, "message") != nullptr) return message_of(*value);
    return json::dump(*value);
  }
  return json::dump(body).substr(0, kShownBytes);
}

}  // namespace

std::string message_of_error(std::string_view body) {
  const auto parsed = json::parse(body, "the body");
  return parsed && parsed->is_object() ? message_of(*parsed) : std::string(body.substr(0, kShownBytes));
}

int CompletionStream::push(std::string_view bytes) {
  const std::int64_t before = n_chunks_;
  events_.push(bytes, [this](std::string_view data) {
    if (!error_.empty() || data.empty()) return;
    if (data == "[DONE]") {
      has_end_ = true;
      return;
    }
    if (const auto frame = json::parse(data, "a frame"))
      take_frame(*frame);
    else
      error_ = frame.error().message;
  });
  return static_cast<int>(n_chunks_ - before);
}

void CompletionStream::finish() {
  if (!error_.empty()) return;
  if (!has_end_)
    error_ = "the stream ended without [DONE] or a finish reason";
  else if (n_chunks_ == 0)
    error_ = "the answer has no token";
}

void CompletionStream::take_frame(const json::Value& frame) {
  if (found(&frame, "error") != nullptr) {
    error_ = message_of(frame);
    return;
  }
  if (const json::Value* usage = found(&frame, "usage")) take_usage(*usage);
  const json::Value* choices = found(&frame, "choices");
  if (choices != nullptr && choices->is_array() && !choices->empty()) take_choice((*choices)[0]);
}

void CompletionStream::take_choice(const json::Value& choice) {
  const json::Value* const delta = found(&choice, "delta");
  const bool is_chat = delta != nullptr;
  const json::Value* text = is_chat ? found(delta, "content") : found(&choice, "text");
  for (const char* const field : {"reasoning_content", "reasoning"})  // which reasoning models answer with first
    if (is_chat && string_or_empty(text).empty() && !string_or_empty(found(delta, field)).empty()) text = found(delta, field);
  std::size_t n_ids = 0;
  if (const json::Value* ids = found(&choice, "token_ids"); ids != nullptr && ids->is_array()) {
    for (const json::Value& id : *ids)
      if (id.is_number_integer()) token_ids_.push_back(id.get<TokenId>());
    n_ids = ids->size();
  }
  const std::string_view reason = string_or_empty(found(&choice, "finish_reason"));
  const bool begins =
      n_chunks_ == 0 && (found(&choice, "prompt_token_ids") != nullptr || (is_chat && found(delta, "role") != nullptr));
  const bool is_part = text != nullptr && reason.empty() && !begins;
  if (n_ids > 0 || !string_or_empty(text).empty() || is_part) ++n_chunks_;
  text_ += string_or_empty(text);
  if (reason.empty()) return;
  has_end_ = true;
  if (reason == "error" || reason == "abort") error_ = "the server ended the answer: finish_reason " + std::string(reason);
}

void CompletionStream::take_usage(const json::Value& usage) {
  const auto keep = [](std::optional<std::int64_t>& kept, const json::Value* value) {
    if (const auto count = count_of(value)) kept = count;
  };
  keep(prompt_tokens_, found(&usage, "prompt_tokens"));
  keep(completion_tokens_, found(&usage, "completion_tokens"));
  keep(cached_tokens_, found(found(&usage, "prompt_tokens_details"), "cached_tokens"));
}

}  // namespace baton
