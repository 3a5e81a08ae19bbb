/// Fuzzes the validation of requests: any JSON gives an error that names a field, or values inside the limits that the
/// engine and the answers rely on.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "core/check.h"
#include "engine/schedule/request_check.h"
#include "server/request/generation.h"
#include "server/served/shape_messages.h"

namespace {

constexpr baton::RequestBounds kBounds = {.n_vocab = 1000, .max_logprobs = 20};

void check_ids(const baton::SharedList<baton::TokenId>& ids) {
  for (const baton::TokenId id : ids) baton::check(id >= 0 && id < kBounds.n_vocab, "an id outside the vocabulary");
}

void check_generation(const baton::GenerationRequest& request) {
  const baton::SamplingParams& sampling = request.sampling;
  baton::check(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "a temperature that is not a temperature");
  baton::check(sampling.top_p > 0 && sampling.top_p <= 1 && sampling.top_k >= 0, "a choice out of range");
  baton::check(!sampling.max_tokens || *sampling.max_tokens >= 0, "a negative token limit");
  baton::check(sampling.min_tokens >= 0, "a negative least length");
  baton::check(sampling.n_top_logprobs >= -1 && sampling.n_top_logprobs <= kBounds.max_logprobs,
               "log-probabilities out of range");
  baton::check(request.n >= 1 && request.n <= baton::kMaxSequencesPerRequest, "sequences out of range");
  baton::check(request.stop.size() <= baton::kMaxStopStrings, "too many stop strings");
  for (const std::string& stop : request.stop) baton::check(!stop.empty(), "an empty stop string");
  if (request.request_id)
    for (const char c : *request.request_id) baton::check(c > ' ' && c <= '~', "an id that is not fit for a header");
  check_ids(sampling.stop_ids);
  check_ids(sampling.allowed_ids);
  for (const baton::TokenBias& bias : sampling.logit_bias) {
    check_ids({bias.id});
    baton::check(bias.bias >= -baton::kMaxBias && bias.bias <= baton::kMaxBias, "a bias out of range");
  }
  for (const std::string& word : request.bad_words) baton::check(!word.empty(), "an empty bad word");
  baton::check(sampling.min_p >= 0 && sampling.min_p <= 1 && sampling.repetition_penalty > 0, "a weight out of range");
  for (const float penalty : {sampling.presence_penalty, sampling.frequency_penalty})
    baton::check(penalty >= -baton::kMaxPenalty && penalty <= baton::kMaxPenalty, "a penalty out of range");
}

/// How much text the contents of messages have.
std::size_t text_bytes(const baton::json::Value& messages) {
  std::size_t n_bytes = 0;
  for (const baton::json::Value& message : messages) {
    const baton::json::Value* content = baton::json::find(message, "content");
    if (content == nullptr || content->is_null()) continue;
    if (content->is_string()) n_bytes += content->get_ref<const std::string&>().size();
    if (content->is_array())
      for (const baton::json::Value& part : *content) n_bytes += part["text"].get_ref<const std::string&>().size();
  }
  return n_bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto body = baton::json::parse(std::string_view(reinterpret_cast<const char*>(data), size), "the body");
  if (!body) return 0;
  if (const auto chat = baton::parse_chat_request(*body, {}, kBounds)) {
    check_generation(chat->generation);
    baton::check(!chat->messages.empty() && chat->template_variables.is_object(), "a conversation without messages");
    for (const baton::json::Value& message : chat->messages) {
      const baton::json::Value* content = baton::json::find(message, "content");
      if (content == nullptr)  // templates tell one that is absent from null
        baton::check(message.contains("tool_calls"), "a message without content and tool calls");
      else
        baton::check(content->is_string() || content->is_null() || content->is_array(), "a content that is no text");
    }
    const std::size_t n_text_bytes = text_bytes(chat->messages);
    for (unsigned bits = 0; bits < 256; ++bits) {
      const auto has = [&](unsigned bit) { return (bits >> bit & 1U) != 0; };
      const baton::TemplateTraits traits{
          .shows_calls = has(0),
          .shows_several_calls = has(7),
          .shows_results = has(0) || has(1),
          .takes_text_arguments = has(1),
          .takes_object_arguments = has(2),
          .takes_broken_arguments = has(6),
          .takes_null_content = has(2),
          .takes_absent_content = has(3),
          .takes_thoughtful_calls = true,  // otherwise content becomes reasoning, which is not counted
          .has_short_ids = has(4),
          .knows_developer = has(5),
          .shows_system = has(4),
          .shows_two_systems = has(5),
          .shows_later_system = has(6),
          .shows_last_system = has(7),
          .takes_system_parts = has(3),
          .takes_user_parts = has(7)};
      baton::check(text_bytes(baton::shape_messages(chat->messages, traits)) >= n_text_bytes, "a text is lost");
    }
  } else {
    baton::check(!chat.error().message.empty(), "an error without words");
  }
  if (const auto completion = baton::parse_completion_request(*body, {}, kBounds)) {
    check_generation(completion->generation);
    baton::check(!completion->prompts.empty(), "a completion without a prompt");
    for (const baton::Prompt& prompt : completion->prompts)
      if (const auto* ids = std::get_if<std::vector<baton::TokenId>>(&prompt)) check_ids(*ids);
  }
  return 0;
}
