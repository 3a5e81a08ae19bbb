/// Custom tools, which take one text: to the model they are functions with one argument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// The function of a chat completion that stands for a custom tool {"name", "description", "format"}, which errors call `key`.
/// A regular expression of the format becomes a pattern of the argument, and is_strict. A grammar in Lark's notation is shown to the
/// model in the description, and kept to where its rules do not refer to themselves (grammar/ebnf/regular_grammar.h). Errors:
/// invalid_request for fields that are wrong, and for what is not a grammar.
Result<json::Value> custom_function(const json::Value& tool, const std::string& key);

/// The arguments of the function for a text of the tool.
std::string custom_arguments(const json::Value& input);

/// Reads the text of a custom tool out of the arguments of its function while they are written.
/// What is not an object with such a text is the text itself: nothing that the model has written is lost.
class CustomInput {
 public:
  /// The piece of the text that a piece of the arguments completes.
  std::string take(std::string_view arguments);
  /// What is left at the end.
  std::string end();

 private:
  enum class State : std::uint8_t { front, text, escape, digits, behind };
  void take_escaped(char c, std::string& out);
  void take_digit(char c, std::string& out);
  /// The first half of a character whose second half did not follow.
  void end_half(std::string& out);

  State state_ = State::front;
  std::string front_;       // what has been read before the text begins
  std::uint32_t code_ = 0;  // of \uXXXX
  int n_digits_ = 0;
  std::uint32_t high_ = 0;  // the first half of a character that takes two codes; 0: none
};

}  // namespace baton
