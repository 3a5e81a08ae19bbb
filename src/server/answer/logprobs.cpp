/// Both shapes of log-probabilities.
#include "server/answer/logprobs.h"

#include <algorithm>

#include "text/split/unicode.h"

namespace baton {
namespace {

using json::Value;

/// JSON has no infinity; clients expect this number in its place.
constexpr double kFloor = -9999.0;

double bounded(float logprob) { return std::max(static_cast<double>(logprob), kFloor); }

Value chat_entry(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string bytes = tokenizer.token_bytes(token);
  Value entry;
  entry["token"] = unicode::to_valid_utf8(bytes);
  entry["logprob"] = bounded(logprob);
  Value& list = entry["bytes"] = Value::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return entry;
}

std::size_t n_characters(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// A token's alternatives and itself, by their texts.
std::string top_logprobs(const Tokenizer& tokenizer, const TokenOutput& token) {
  Value top = Value::object();
  for (const TokenLogprob& other : token.top_logprobs)
    top[unicode::to_valid_utf8(tokenizer.token_bytes(other.token))] = bounded(other.logprob);
  top[unicode::to_valid_utf8(tokenizer.token_bytes(token.token))] = bounded(*token.logprob);
  return json::dump(top);
}

/// A prompt's token and its alternatives, by their ids.
std::string prompt_entry(const Tokenizer& tokenizer, const TokenOutput& score, std::int32_t n_top) {
  Value entries = Value::object();
  const auto add = [&](TokenId token, float logprob, std::int32_t rank) {
    Value& entry = entries[std::to_string(token)];
    entry["logprob"] = bounded(logprob);
    entry["rank"] = rank;
    entry["decoded_token"] = unicode::to_valid_utf8(tokenizer.token_bytes(token));
  };
  add(score.token, score.logprob.value_or(0), score.rank);
  std::int32_t rank = 0;
  for (const TokenLogprob& other : score.top_logprobs) {
    if (++rank > n_top) break;
    if (other.token != score.token) add(other.token, other.logprob, rank);
  }
  return json::dump(entries);
}

}  // namespace

Value chat_logprob(const Tokenizer& tokenizer, const TokenOutput& token) {
  Value entry = chat_entry(tokenizer, token.token, token.logprob.value_or(0));
  Value& top = entry["top_logprobs"] = Value::array();
  for (const TokenLogprob& other : token.top_logprobs) top.push_back(chat_entry(tokenizer, other.token, other.logprob));
  return entry;
}

Resumable write_completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> echoed,
                                    std::span<const TokenOutput> tokens, std::size_t& text_offset, std::string& out) {
  const std::size_t n = echoed.size() + tokens.size();
  const auto token_at = [=](std::size_t i) -> const TokenOutput& {
    return i < echoed.size() ? echoed[i] : tokens[i - echoed.size()];
  };
  const auto text_of = [&](TokenId token) { return unicode::to_valid_utf8(tokenizer.token_bytes(token)); };
  StepSize step;
  out += R"({"text_offset":[)";
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) out += ',';
    out += std::to_string(text_offset);
    text_offset += n_characters(text_of(token_at(i).token));
    if (step.add(1)) co_await Resumable::pause();
  }
  out += R"(],"token_logprobs":[)";
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) out += ',';
    const TokenOutput& token = token_at(i);
    out += token.logprob ? json::dump(bounded(*token.logprob)) : "null";  // null: the first token of a prompt
    if (step.add(1)) co_await Resumable::pause();
  }
  out += R"(],"tokens":[)";
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) out += ',';
    out += json::dump(text_of(token_at(i).token));
    if (step.add(1)) co_await Resumable::pause();
  }
  out += R"(],"top_logprobs":[)";
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) out += ',';
    const TokenOutput& token = token_at(i);
    out += token.logprob ? top_logprobs(tokenizer, token) : "null";
    if (step.add(1 + token.top_logprobs.size())) co_await Resumable::pause();
  }
  out += "]}";
}

Resumable write_prompt_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> scores, std::int32_t n_top,
                                std::string& out) {
  StepSize step;
  out += "[null";
  for (const TokenOutput& score : scores) {
    out += ',';
    out += prompt_entry(tokenizer, score, n_top);
    if (step.add(1 + score.top_logprobs.size())) co_await Resumable::pause();
  }
  out += ']';
}

}  // namespace baton
