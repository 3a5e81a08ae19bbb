/// The bodies of a serving benchmark's requests: a prompt of token ids for /v1/completions, messages for chat.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/http/server_address.h"
#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// What all requests of a load say beside their prompt and length.
struct RequestFormat {
  ServerAddress address = {};
  std::string endpoint = "/v1/completions";
  bool is_chat = false;
  std::string model = {};
  std::vector<std::string> headers = {};  ///< lines
  bool ignore_eos = true;
  double temperature = 0;
  json::Value extra = json::Value::object();  ///< fields that are added, or replace ours
  bool wants_ids = false;                     ///< asks for token ids, which a later turn sends back
  const Tokenizer* tokenizer = nullptr;       ///< chat needs one, to turn prompts into text
};

/// A conversation up to a prompt, with the answers so far.
struct PromptHistory {
  std::vector<TokenId> tokens;                  ///< completions
  json::Value messages = json::Value::array();  ///< chat
  std::int64_t n_tokens = 0;
};

/// Writes bodies of one format. Thread: one at a time.
class RequestWriter {
 public:
  explicit RequestWriter(RequestFormat format);

  const RequestFormat& format() const { return format_; }

  /// The body for a prompt without turns before it.
  std::string write(std::span<const TokenId> prompt, std::int32_t output_len) const;
  std::string write(const PromptHistory& history, std::int32_t output_len) const;

  void add_prompt(PromptHistory& history, std::span<const TokenId> prompt) const;
  /// `ids` may be empty, where the server sends none; the tokenizer then encodes `text`. Errors: unsupported, if there
  /// is no tokenizer either.
  Result<void> add_answer(PromptHistory& history, std::string_view text, std::span<const TokenId> ids) const;

 private:
  std::string write_body(const std::string& prompt_field, std::int32_t output_len) const;
  json::Value message(const char* role, std::string_view text) const;

  RequestFormat format_;
  std::string common_;  // the fields that are the same in all bodies, and the closing brace
};

}  // namespace baton
