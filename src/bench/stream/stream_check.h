/// Checks one streamed answer as its bytes arrive: server-sent events in chunks, frames in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/http/http_streams.h"
#include "io/json.h"

namespace baton {

struct StreamExpectation {
  bool is_chat = false;
  bool has_ids = false;  ///< frames have `token_ids`, so every token can be counted
};

/// Expects the answer to a request with one choice and `include_usage`: for chat the role, then text, the finish
/// reason, the usage and [DONE], each once and with the same id and model. With ids, as many tokens must have come as the usage says; without, at most this many frames with text,
/// because a token may be half a character. Thread: one at a time.
class StreamCheck {
 public:
  explicit StreamCheck(StreamExpectation expected) : expected_(expected) {}

  /// Takes bytes of the body, however they are cut. Returns how many frames with text or tokens they completed.
  std::int64_t push(const HttpHead& head, std::string_view bytes);
  /// The answer has ended in order.
  void finish(const HttpHead& head);

  /// The first fault, after which nothing more is read; empty if there was none.
  const std::string& fault() const { return fault_; }
  std::int64_t n_frames() const { return n_frames_; }  ///< with text or tokens
  std::int64_t n_tokens() const { return n_tokens_; }  ///< by ids, or by the usage
  /// Tokens that the usage counts but no frame brought; negative if frames brought more. 0 without ids.
  std::int64_t n_lost() const { return n_lost_; }

 private:
  enum class Phase { role, text, usage, mark, over };

  bool is_stream_of_chunks(const HttpHead& head);
  void take_events(std::string_view bytes);
  void take_data(std::string_view data);
  void take_frame(const json::Value& frame);
  void take_choice(const json::Value& choice);
  void take_usage(const json::Value& frame);
  void blame(std::string fault);

  StreamExpectation expected_;
  std::string refusal_;  // the beginning of the body of a status that is not 200
  std::string events_;   // an incomplete event
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
