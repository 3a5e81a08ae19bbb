/// The `decoder` of a tokenizer.json: joins the texts of tokens, as a whole or token by token.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"
#include "text/split/pattern.h"
#include "text/split/unicode.h"

namespace baton {

/// A list of steps: Replace, ByteFallback, Fuse, Strip, ByteLevel, Metaspace, BPEDecoder and Sequence of these;
/// null joins tokens by spaces. Immutable. Thread: any.
class TokenDecoder {
 public:
  TokenDecoder() = default;
  /// Errors: unsupported, with the name of the component, also for steps after Fuse or ByteLevel that need the whole
  /// text (all but Fuse, Replace of a String, Strip); invalid_data, also where the steps could make a text more than 4,096
  /// times as long.
  static Result<TokenDecoder> from_json(const json::Value& value);

  /// The decoder of a SentencePiece model: ▁ is a space, <0xNN> a byte, and with `adds_space` the first space of the
  /// text is dropped.
  static TokenDecoder for_sentencepiece(bool adds_space);

  /// Adds Transformers' clean_up_tokenization_spaces: no space before punctuation and contractions.
  void clean_up_spaces() { steps_.push_back({.kind = Step::Kind::clean_up, .is_fused = true}); }

  /// The bytes that a token's text adds when other tokens came before it.
  std::string bytes_of(std::string_view token) const;

 private:
  struct Step {
    enum class Kind {
      join_by_space,
      replace,
      byte_fallback,
      fuse,
      strip,
      byte_level,
      metaspace,
      word_end,
      clean_up
    } kind = Kind::fuse;
    std::optional<Pattern> pattern = std::nullopt;  // replace
    // replace: what comes in its place; strip: the character; metaspace: the replacement; word_end: the suffix
    std::string content = {};
    int start = 0;              // strip: at most so many characters from the front
    int stop = 0;               // strip: and from the back
    bool strips_first = false;  // metaspace: the first token loses its replacement
    bool is_fused = false;      // the tokens before this step are parts of one text
  };

 public:
  /// One text being decoded. The decoder must outlive it. Thread: one at a time.
  class Stream {
   public:
    explicit Stream(const TokenDecoder& decoder);
    /// Adds a token and appends to `out` the text that is final from now on: whole characters.
    void push(std::string_view token, std::string& out);
    /// Forgets text that is held back: what follows is decoded as after the tokens so far, without their text.
    void drop_held();
    /// Ends the text: appends the text that was held back; incomplete bytes become U+FFFD.
    void finish(std::string& out);

   private:
    struct State {
      bool is_first = true;
      // replace, strip, clean_up: text that may be changed by what follows; byte_fallback: bytes; word_end: a token
      std::string held;
      int n_stripped = 0;             // strip, fused
      bool is_front_done = false;     // strip, fused
      unicode::Utf8Stream utf8 = {};  // byte_level
    };

    void feed(std::size_t step, std::string_view token, std::string& out);
    void feed_replace(std::size_t step, std::string_view token, std::string& out);
    void feed_strip(std::size_t step, std::string_view token, std::string& out);
    void feed_clean_up(std::size_t step, std::string_view token, std::string& out);
    void end_bytes(std::size_t step, std::string& out);
    void flush(std::size_t step, std::string& out);

    const TokenDecoder& decoder_;
    std::vector<State> states_;
  };

 private:
  Result<void> add(const json::Value& value, int depth);
  Result<void> add_step(std::string_view type, const json::Value& value);
  Result<void> count_growth(const std::string* literal, std::size_t n_content);

  std::vector<Step> steps_;
  // While steps are added: whether the next gets one text, and how many times as long they make a text at most.
  bool is_fused_ = false;
  std::size_t growth_ = 1;
};

}  // namespace baton
