/// Bodies are written as text: a prompt of a hundred thousand ids is no tree of JSON values.
#include "bench/serve/serve_requests.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace baton {
namespace {

std::string prompt_of_ids(std::span<const TokenId> ids) {
  std::string text = "\"prompt\":[";
  for (std::size_t i = 0; i < ids.size(); ++i) fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", ids[i]);
  return text + "]";
}

}  // namespace

RequestWriter::RequestWriter(RequestFormat format) : format_(std::move(format)) {
  json::Value body;
  body["model"] = format_.model;
  body["temperature"] = format_.temperature;
  body["stream"] = true;
  body["stream_options"]["include_usage"] = true;
  if (format_.ignore_eos) body["ignore_eos"] = true;
  if (format_.wants_ids) body["return_token_ids"] = true;
  body.update(format_.extra);
  common_ = json::dump(body).substr(1);
}

std::string RequestWriter::write_body(const std::string& prompt_field, std::int32_t output_len) const {
  const std::string length = format_.extra.contains("max_tokens") ? "" : fmt::format("\"max_tokens\":{},", output_len);
  return fmt::format("{{{},{}{}", prompt_field, length, common_);
}

std::string RequestWriter::write(std::span<const TokenId> prompt, std::int32_t output_len) const {
  if (!format_.is_chat) return write_body(prompt_of_ids(prompt), output_len);
  PromptHistory history;
  add_prompt(history, prompt);
  return write(history, output_len);
}

std::string RequestWriter::write(const PromptHistory& history, std::int32_t output_len) const {
  return write_body(format_.is_chat ? "\"messages\":" + json::dump(history.messages) : prompt_of_ids(history.tokens),
                    output_len);
}

json::Value RequestWriter::message(const char* role, std::string_view text) const {
  json::Value made;
  made["role"] = role;
  made["content"] = text;
  return made;
}

void RequestWriter::add_prompt(PromptHistory& history, std::span<const TokenId> prompt) const {
  history.n_tokens += static_cast<std::int64_t>(prompt.size());
  if (format_.is_chat)
    history.messages.push_back(message("user", format_.tokenizer->decode(prompt, /*skip_special_tokens=*/true)));
  else
    history.tokens.insert(history.tokens.end(), prompt.begin(), prompt.end());
}

Result<void> RequestWriter::add_answer(PromptHistory& history, std::string_view text, std::span<const TokenId> ids) const {
  std::vector<TokenId> encoded;
  if (ids.empty() && format_.tokenizer != nullptr) {
    encoded = format_.tokenizer->encode_plain(text);
    ids = encoded;
  }
  history.n_tokens += static_cast<std::int64_t>(ids.size());
  if (format_.is_chat) {
    history.messages.push_back(message("assistant", text));
    return {};
  }
  if (ids.empty())
    return fail(ErrorCode::unsupported,
                "the server does not send token ids (return_token_ids): the next turn needs --tokenizer");
  history.tokens.insert(history.tokens.end(), ids.begin(), ids.end());
  return {};
}

}  // namespace baton
