/// The streamed answer of any server with OpenAI's API: its text, its tokens, when chunks with tokens come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/http/http_streams.h"
#include "core/ids.h"
#include "io/json.h"

namespace baton {

/// Reads the body of a streamed /v1/completions or /v1/chat/completions from any server: with or without usage, ids, a
/// role, a chunk that only ends. The strict reader is StreamCheck. Thread: one at a time.
class CompletionStream {
 public:
  /// Takes bytes of the body, however they are cut. Returns how many chunks with tokens they completed. A chunk has
  /// tokens if it has ids or text, or an empty text that neither ends the answer nor begins it (with the role, or the
  /// prompt's ids): half a character.
  int push(std::string_view bytes);
  /// The body has ended in order. An answer that no chunk ended has an error.
  void finish();

  std::int64_t n_chunks() const { return n_chunks_; }  ///< with tokens
  const std::string& text() const { return text_; }
  const std::vector<TokenId>& token_ids() const { return token_ids_; }  ///< empty if the server sends none
  /// Of the last usage, as far as it was sent.
  std::optional<std::int64_t> prompt_tokens() const { return prompt_tokens_; }
  std::optional<std::int64_t> completion_tokens() const { return completion_tokens_; }
  std::optional<std::int64_t> cached_tokens() const { return cached_tokens_; }
  /// What the server said in place of an answer, or what is missing; empty if there is no error.
  const std::string& error() const { return error_; }

 private:
  void take_frame(const json::Value& frame);
  void take_choice(const json::Value& choice);
  void take_usage(const json::Value& usage);

  ServerSentEvents events_;
  bool has_end_ = false;  // a finish reason or [DONE]
  std::int64_t n_chunks_ = 0;
  std::string text_;
  std::vector<TokenId> token_ids_;
  std::optional<std::int64_t> prompt_tokens_, completion_tokens_, cached_tokens_;
  std::string error_;
};

/// The message of an error's body: {"error": {"message": M}}, {"error": M}, {"message": M}, {"detail": M}, or the
/// body's beginning.
std::string message_of_error(std::string_view body);

}  // namespace baton
