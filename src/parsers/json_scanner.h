/// The syntax of one JSON value that comes byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace baton::parsers {

/// Says where a value ends. Its strings may have raw control characters, which models write; escaped() replaces them.
class JsonScanner {
 public:
  /// Lists and objects nested deeper are refused.
  static constexpr std::size_t kMaxDepth = 256;

  enum class Step : std::uint8_t {
    inside,        ///< the value goes on
    ends,          ///< the byte is its last one
    ended_before,  ///< the value was a number and ended in front of the byte
    fault,         ///< no JSON
  };
  Step take(char c);
  /// The last byte taken as JSON: itself, or an escape for a control character inside of a string.
  std::string_view escaped(char c);
  /// Whether the byte that comes next is in a string.
  bool is_in_string() const { return state_ == State::string; }
  void reset() { *this = JsonScanner(); }

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
  Step begin_value(char c);
  Step end_value(Step at_end);
  Step close(char c);
  Step take_number(char c);
  Step take_after(char c);
  bool is_top() const { return open_.empty(); }

  State state_ = State::value;
  bool is_key_ = false;         // the string is a key
  bool was_in_string_ = false;  // the last byte
  int n_hex_ = 0;
  std::string_view word_ = {};  // what is left of true, false or null
  std::string open_;            // the brackets that are open
  std::string escaped_;
};

/// `text` as the inside of a JSON string: quotes, backslashes and control characters escaped.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace baton::parsers
