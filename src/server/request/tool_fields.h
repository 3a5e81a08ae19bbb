/// The fields of a chat request that say which tools the model may or must call. Custom tools, which take one text: to the
/// model they are functions with one argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "parsers/message_format.h"

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

inline constexpr std::size_t kMaxTools = 1024;
inline constexpr std::size_t kMaxToolBytes = std::size_t{1} << 20;  ///< of their JSON text
inline constexpr std::size_t kMaxToolNameBytes = 128;
/// Of reading the schemas of all tools for the answer's parser, which is linear: tools within kMaxToolBytes need less than a third.
inline constexpr WorkLimits kToolLimits{.steps = std::int64_t{1} << 24, .bytes = std::int64_t{96} << 20};

struct ToolFields {
  json::Value definitions;                                  ///< a list of functions, for templates; null: none
  std::shared_ptr<const std::vector<parsers::Tool>> tools;  ///< null: none
  parsers::ToolChoice choice{parsers::ToolChoice::Kind::none};
  std::set<std::string> custom;   ///< names of tools that take a text: see custom_function
  std::set<std::string> allowed;  ///< names of `allowed_tools`; empty: all
  bool is_parallel = true;        ///< the answer may have several calls
};

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. Errors (invalid_request) name the field in `param`.
Result<ToolFields> parse_tool_fields(const json::Value& body);

/// The error of a request that cannot have tools (a plain completion) for the first of these fields that asks for one. It says that
/// the path `conversations_at` has them, if there is one.
Result<void> refuse_tool_fields(const json::Value& body, std::string_view conversations_at);

}  // namespace baton
