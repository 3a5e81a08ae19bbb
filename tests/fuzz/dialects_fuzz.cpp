/// Fuzzes the requests of the other dialects: any JSON gives an error that has words, or a body that chat completions judge.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "server/dialects/messages/dialect.h"
#include "server/dialects/responses/dialect.h"
#include "server/request/generation.h"

namespace {

constexpr baton::RequestBounds kBounds = {.n_vocab = 1000, .max_logprobs = 20};

void check_chat(const baton::json::Value& chat) {
  const auto parsed = baton::parse_chat_request(chat, {}, kBounds);
  if (!parsed) return baton::check(!parsed.error().message.empty(), "an error without words");
  baton::check(!parsed->messages.empty() && parsed->generation.n == 1, "an answer with several choices");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto body = baton::json::parse(std::string_view(reinterpret_cast<const char*>(data), size), "the body");
  if (!body || !body->is_object()) return 0;
  if (const auto messages = baton::read_messages_request(*body, /*needs_max_tokens=*/false)) {
    check_chat(messages->chat);
    baton::check(messages->marks.size() <= baton::kMaxCacheMarks, "too many marks");
    for (const baton::CacheMark& mark : messages->marks) {
      const auto cut = baton::read_messages_request(baton::cut_at_mark(*body, mark), /*needs_max_tokens=*/false);
      if (cut) check_chat(cut->chat);
    }
  } else {
    baton::check(!messages.error().message.empty(), "an error without words");
  }
  if (const auto response = baton::read_responses_request(*body, baton::json::Value::array())) {
    check_chat(response->chat);
    for (const baton::json::Value& item : response->items)
      baton::check(item.contains("id") && item.contains("type"), "an item without an id or a type");
  } else {
    baton::check(!response.error().message.empty(), "an error without words");
  }
  return 0;
}
