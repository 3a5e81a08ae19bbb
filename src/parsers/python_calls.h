/// Calls as a Python list: `[f(a=1), g(b="x")]`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parsers/call_reader.h"

namespace baton::parsers {

/// Literals of Python that come byte by byte, as JSON: strings (also of three quotes, raw ones, and neighbours, which are one), numbers,
/// True, False, None, lists, tuples and dicts with strings as keys. A backslash that begins no escape stands for itself, also in front
/// of `x`, `u` or `U` without their digits.
class PythonLiteral {
 public:
  static constexpr std::size_t kMaxDepth = 256;
  /// `json` is what the bytes so far say. `ended_before`: the literal has ended in front of the byte.
  enum class Step : std::uint8_t { inside, ended_before, fault };
  void begin() { *this = PythonLiteral(); }
  Step take(char c, std::string& json);
  /// A number, name or prefix of a string that is not written yet.
  const std::string& word() const { return word_; }

 private:
  enum class State : std::uint8_t {
    value,
    key,
    key_prefix,  // of a string
    colon,
    after,
    word,
    string,
    maybe_triple,
    escape,
    code,
    raw_escape,
    after_string,  // another one may follow
    next_prefix,   // of that one
  };
  Step begin_value(char c, std::string& json);
  Step begin_key(char c, std::string& json);
  void begin_string(char quote);
  Step take_word(char c, std::string& json);
  Step take_after_string(char c, std::string& json);
  Step take_after(char c, std::string& json);
  Step take_string(char c, std::string& json);
  Step take_escape(char c, std::string& json);
  Step end_code(std::string& json);
  Step end_string(std::string& json);
  void write_lone_surrogate(std::string& json);
  bool write_word(std::string& json);

  State state_ = State::value;
  bool may_close_ = false;  // after an opening bracket or a comma
  bool is_key_ = false;
  bool is_raw_ = false;
  bool is_triple_ = false;
  bool is_empty_ = false;  // the string
  char quote_ = '\0';
  int n_quotes_ = 0;  // of the end of a string of three quotes
  int n_digits_ = 0;  // of an escape, still to come
  unsigned code_ = 0;
  unsigned high_ = 0;   // the first half of a pair of surrogates
  std::string escape_;  // an escape so far, without its backslash
  std::string word_;
  std::string open_;
};

/// A text that is one list, tuple or dict of Python with spaces around it, as JSON; nullopt for other texts.
std::optional<std::string> json_of_python(std::string_view text);

class PythonCalls : public CallReader {
 public:
  static constexpr std::string_view kStart = "<|python_start|>";
  static constexpr std::string_view kEnd = "<|python_end|>";

  /// `close` ends a list after a marker.
  explicit PythonCalls(std::string_view close) : close_(close) {}

  void begin(std::string_view marker) override;
  CallStep take(char c, CallWriter& writer) override;
  std::string_view begun_name() const override { return name_; }

 private:
  enum class State : std::uint8_t { before, name, key, equals, value, behind_call, close };
  static constexpr std::size_t kMaxName = 256;
  CallStep take_byte(char c, CallWriter& writer);
  CallStep take_name(char c);
  CallStep end_list();
  CallStep take_key(char c, CallWriter& writer);
  CallStep take_value(char c, CallWriter& writer);
  CallStep finish_call(CallWriter& writer);

  std::string_view close_;
  State state_ = State::before;
  bool is_marked_ = false;
  bool has_calls_ = false;  // in front
  bool is_first_ = false;   // no argument yet
  std::string name_;
  std::string key_;
  std::size_t n_close_ = 0;
  PythonLiteral literal_;
};

}  // namespace baton::parsers
