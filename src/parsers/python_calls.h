/// Calls as a Python list: `[f(a=1), g(b="x")]`.
#pragma once

#include <string>
#include <string_view>

#include "parsers/call_reader.h"

namespace baton::parsers {

/// Literals of Python that come byte by byte, as JSON: strings (also of three quotes), numbers, True, False, None, lists,
/// tuples and dicts with strings as keys.
class PythonLiteral {
 public:
  static constexpr std::size_t kMaxDepth = 256;
  /// `json` is what the bytes so far say. `ended_before`: the literal has ended in front of the byte.
  enum class Step : std::uint8_t { inside, ended_before, fault };
  void begin() { *this = PythonLiteral(); }
  Step take(char c, std::string& json);
  /// A number or name that is not written yet.
  const std::string& word() const { return word_; }

 private:
  enum class State : std::uint8_t { value, key, colon, after, word, string, maybe_triple, escape, code };
  Step begin_value(char c, std::string& json);
  Step take_after(char c, std::string& json);
  Step take_string(char c, std::string& json);
  Step take_escape(char c, std::string& json);
  Step end_code(std::string& json);
  Step end_string(std::string& json);
  bool write_word(std::string& json);

  State state_ = State::value;
  bool may_close_ = false;  // behind an opening bracket or a comma
  bool is_key_ = false;
  bool is_triple_ = false;
  bool is_empty_ = false;  // the string
  char quote_ = '\0';
  int n_quotes_ = 0;  // of the end of a string of three quotes
  int n_digits_ = 0;  // of an escape, still to come
  unsigned code_ = 0;
  unsigned high_ = 0;  // the first half of a pair of surrogates
  std::string word_;
  std::string open_;
};

class PythonCalls : public CallReader {
 public:
  static constexpr std::string_view kStart = "<|python_start|>";
  static constexpr std::string_view kEnd = "<|python_end|>";

  void begin(std::string_view marker) override;
  CallStep take(char c, CallWriter& writer) override;

 private:
  enum class State : std::uint8_t { before, name, key, equals, value, behind_call, close };
  static constexpr std::size_t kMaxName = 256;
  CallStep take_byte(char c, CallWriter& writer);
  CallStep take_key(char c, CallWriter& writer);
  CallStep take_value(char c, CallWriter& writer);
  CallStep finish_call(CallWriter& writer);

  State state_ = State::before;
  bool is_marked_ = false;
  bool is_first_ = false;  // no argument yet
  std::string name_;
  std::string key_;
  std::size_t n_close_ = 0;
  PythonLiteral literal_;
};

}  // namespace baton::parsers
