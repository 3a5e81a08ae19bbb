/// Both shapes of log-probabilities.
#include "server/openai_logprobs.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

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

std::string completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> echoed,
                                std::span<const TokenOutput> tokens, std::size_t& text_offset) {
  std::string offsets, logprobs, texts, tops;
  for (const std::span<const TokenOutput> part : {echoed, tokens}) {
    for (const TokenOutput& token : part) {
      for (std::string* list : {&offsets, &logprobs, &texts, &tops})
        if (!list->empty()) *list += ',';
      const std::string text = unicode::to_valid_utf8(tokenizer.token_bytes(token.token));
      offsets += std::to_string(text_offset);
      text_offset += n_characters(text);
      texts += json::dump(text);
      if (!token.logprob) {  // the first token of a prompt
        logprobs += "null";
        tops += "null";
        continue;
      }
      logprobs += json::dump(bounded(*token.logprob));
      Value top = Value::object();
      for (const TokenLogprob& other : token.top_logprobs)
        top[unicode::to_valid_utf8(tokenizer.token_bytes(other.token))] = bounded(other.logprob);
      top[text] = bounded(*token.logprob);
      tops += json::dump(top);
    }
  }
  return fmt::format(R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})", offsets, logprobs,
                     texts, tops);
}

std::string prompt_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> scores, std::int32_t n_top) {
  std::string list = "[null";
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
    list += ',';
    list += json::dump(entries);
  }
  list += ']';
  return list;
}

}  // namespace baton
