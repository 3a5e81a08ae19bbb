/// The syntax of one JSON value that comes byte by byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton::parsers {

/// Says where a value ends, and writes it as JSON. Time per byte and memory are bounded, but for the brackets that are open.
class JsonScanner {
 public:
  /// Lists and objects nested deeper are refused.
  static constexpr std::size_t kMaxDepth = 256;

  enum class Form : std::uint8_t {
    exact,  ///< JSON alone
    /// Also JSON with the mistakes that models make. They are mended: a backslash that begins no escape (also `\u` without four
    /// digits) stands for itself, half of a surrogate pair becomes U+FFFD, control characters in strings are escaped, a comma in
    /// front of a closing bracket is dropped, and True, False and None of Python are words of JSON.
    mended,
  };
  explicit JsonScanner(Form form) : form_(form) {}

  enum class Step : std::uint8_t {
    inside,        ///< the value continues
    ends,          ///< the byte is its last one
    ended_before,  ///< the value was a number and ended in front of the byte
    fault,         ///< no JSON
  };
  Step take(char c);
  /// What the last byte that was taken inside of the value adds to it as JSON: mostly itself, nothing as long as it is not known
  /// what it means, and then all that is known. All that was written is the begin of an exact JSON text.
  std::string_view written() const { return written_; }
  void reset() { *this = JsonScanner(form_); }

 private:
  enum class State : std::uint8_t {
    value,
    value_or_end,
    key,
    key_or_end,
    colon,
    after,  // between tokens
    string,
    escape,
    hex,
    word,
    minus,
    zero,
    integer,
    dot,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
  };
  Step step_of(char c);
  Step begin_value(char c);
  Step begin_word(char c);
  Step end_value(Step at_end);
  Step close(char c);
  Step take_comma_or_next(char c);
  Step take_number(char c);
  Step take_after(char c);
  Step take_string(char c);
  Step take_escape(char c);
  Step take_hex(char c);
  void write_instead(std::string_view text);
  void write_lone_surrogate();
  bool is_top() const { return open_.empty(); }
  bool is_mended() const { return form_ == Form::mended; }

  Form form_;
  State state_ = State::value;
  bool is_key_ = false;         // the string is a key
  bool writes_itself_ = true;   // the byte is written as it is, after written_
  bool has_comma_ = false;      // one that is not written yet
  bool is_none_ = false;        // the word is None, and has been written
  std::string_view word_ = {};  // what is left of true, false or null
  std::string hex_;             // the digits of an escape so far
  std::string high_;            // those of the first half of a pair of surrogates, which are not written yet
  std::string spaces_;          // after that comma
  std::string open_;            // the brackets that are open
  std::string written_;
};

/// A text that is one value with spaces around it, mended and without the spaces; nullopt for other texts.
std::optional<std::string> mended_json(std::string_view text);

/// `text` as the inside of a JSON string: quotes, backslashes and control characters escaped.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace baton::parsers
