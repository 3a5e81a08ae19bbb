/// Both shapes of log-probabilities.
#include "server/openai_logprobs.h"

#include <algorithm>
#include <string>

#include "text/unicode.h"

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

}  // namespace

Value chat_logprob(const Tokenizer& tokenizer, const TokenOutput& token) {
  Value entry = chat_entry(tokenizer, token.token, token.logprob.value_or(0));
  Value& top = entry["top_logprobs"] = Value::array();
  for (const TokenLogprob& other : token.top_logprobs) top.push_back(chat_entry(tokenizer, other.token, other.logprob));
  return entry;
}

Value completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> tokens, std::size_t& text_offset) {
  Value offsets = Value::array();
  Value logprobs = Value::array();
  Value texts = Value::array();
  Value tops = Value::array();
  for (const TokenOutput& token : tokens) {
    const std::string text = unicode::to_valid_utf8(tokenizer.token_bytes(token.token));
    offsets.push_back(text_offset);
    text_offset += n_characters(text);
    texts.push_back(text);
    if (!token.logprob) {  // the first token of a prompt
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(bounded(*token.logprob));
    Value top = Value::object();
    for (const TokenLogprob& other : token.top_logprobs)
      top[unicode::to_valid_utf8(tokenizer.token_bytes(other.token))] = bounded(other.logprob);
    top[text] = bounded(*token.logprob);
    tops.push_back(std::move(top));
  }
  Value all;
  all["text_offset"] = std::move(offsets);
  all["token_logprobs"] = std::move(logprobs);
  all["tokens"] = std::move(texts);
  all["top_logprobs"] = std::move(tops);
  return all;
}

Value prompt_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> scores, std::int32_t n_top) {
  Value list = Value::array();
  list.push_back(nullptr);
  for (const TokenOutput& score : scores) {
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
    list.push_back(std::move(entries));
  }
  return list;
}

}  // namespace baton
