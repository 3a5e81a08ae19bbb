/// What one streamed answer must be, checked as its bytes come: an HTTP response in chunks, server-sent events, frames
/// in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/json.h"

namespace baton {

struct StreamExpectation {
  bool is_chat = false;
  bool has_ids = false;  ///< frames carry `token_ids`, so that every token can be counted
};

/// The answer to a request with one choice and `include_usage`: (chat: the role,) text, the finish reason, the usage,
/// [DONE], each once and of one id and model, and the connection open for the next. With ids as many tokens must have
/// come as the usage says; without, at most that many frames with text, for a token may be half a character. Thread:
/// one at a time.
class StreamCheck {
 public:
  explicit StreamCheck(StreamExpectation expected) : expected_(expected) {}

  /// Takes bytes, in any cuts, and returns how many frames with text or tokens became whole with them.
  std::int64_t push(std::string_view bytes);

  bool is_done() const { return is_done_; }
  /// The first thing that was wrong, after which nothing is read; empty if nothing was.
  const std::string& fault() const { return fault_; }
  std::int64_t n_frames() const { return n_frames_; }  ///< with text or tokens
  std::int64_t n_tokens() const { return n_tokens_; }  ///< by ids, or as the usage says
  /// Tokens that the usage counts and no frame brought, or (negative) the other way round; 0 without ids.
  std::int64_t n_lost() const { return n_lost_; }

 private:
  enum class Phase { role, text, usage, mark, over };

  bool take_head();
  bool take_chunk();
  void take_events(std::string_view bytes);
  void take_data(std::string_view data);
  void take_frame(const json::Value& frame);
  void take_choice(const json::Value& choice);
  void take_usage(const json::Value& frame);
  void blame(std::string fault);

  StreamExpectation expected_;
  std::string input_;  // not read yet, from read_ on
  std::size_t read_ = 0;
  bool has_head_ = false;
  bool is_done_ = false;
  std::string events_;  // an event that was cut
  Phase phase_ = Phase::role;
  std::string id_;
  std::string model_;
  std::string finish_reason_;
  std::int64_t n_frames_ = 0;
  std::int64_t n_tokens_ = 0;
  std::int64_t n_lost_ = 0;
  std::string fault_;
};

}  // namespace baton
