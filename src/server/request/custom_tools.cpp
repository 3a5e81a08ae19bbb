/// A function for a text, and the text of its arguments.
#include "server/request/custom_tools.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/utf8.h"
#include "grammar/ebnf/regular_grammar.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;
using openai::string_member;

constexpr std::string_view kSpaces = " \t\r\n";

/// Whether `front` is `{"input": "`, and the text begins after it; nullopt: it may become that.
std::optional<bool> begins_text(std::string_view front) {
  constexpr std::size_t kMaxFront = 64;
  if (front.size() > kMaxFront) return false;
  for (const std::string_view piece : {"{", "\"input\"", ":", "\""}) {
    front.remove_prefix(std::min(front.find_first_not_of(kSpaces), front.size()));
    if (front.size() < piece.size()) return piece.starts_with(front) ? std::nullopt : std::optional(false);
    if (!front.starts_with(piece)) return false;
    front.remove_prefix(piece.size());
  }
  return true;
}

}  // namespace

Result<Value> custom_function(const Value& tool, const std::string& key) {
  Value function;
  BATON_TRY(function["name"], string_member(tool, "name", key));
  BATON_TRY(const auto given, json::get_optional<std::string>(tool, "description"));
  std::string description = given.value_or("");
  Value input;
  input["type"] = "string";
  if (const Value* format = find_given(tool, "format")) {
    const std::string name = key + ".format";
    if (!format->is_object()) return json::wrong_type(name, "an object", *format);
    BATON_TRY(const std::string type, string_member(*format, "type", name));
    if (type != "text" && type != "grammar")
      return bad(name + ".type",
                 fmt::format("'{}.type' must be \"text\" or \"grammar\", not \"{}\"", name, type.substr(0, 40)));
    if (type == "grammar") {
      // Chat completions have it one level deeper than responses.
      const Value* inner = find_given(*format, "grammar");
      const Value& grammar = inner == nullptr ? *format : *inner;
      BATON_TRY(const std::string syntax, string_member(grammar, "syntax", name));
      BATON_TRY(const std::string definition, string_member(grammar, "definition", name));
      if (syntax != "regex" && syntax != "lark")
        return bad(name + ".syntax",
                   fmt::format("'{}.syntax' must be \"lark\" or \"regex\", not \"{}\"", name, syntax.substr(0, 40)));
      if (syntax == "regex") {
        input["pattern"] = "^(?:" + definition + ")$";
        function["strict"] = true;
      } else {
        if (!description.empty()) description += "\n\n";
        description += "The input must keep to this grammar in Lark's notation:\n" + definition;
        auto is_regular = grammar::is_regular_grammar(definition);
        if (!is_regular) return bad(name + ".definition", fmt::format("'{}.definition': {}", name, is_regular.error().message));
        if (*is_regular) {
          input[std::string(grammar::kGrammarKeyword)] = definition;
          function["strict"] = true;
        }
      }
    }
  }
  if (!description.empty()) function["description"] = std::move(description);
  Value& parameters = function["parameters"];
  parameters["type"] = "object";
  parameters["properties"]["input"] = std::move(input);
  parameters["required"] = Value::array({"input"});
  parameters["additionalProperties"] = false;
  return function;
}

std::string custom_arguments(const Value& input) {
  Value arguments;
  arguments["input"] = input.is_string() ? input : Value(json::dump(input));
  return json::dump(arguments);
}

std::string CustomInput::take(std::string_view arguments) {
  std::string out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const char c = arguments[i];
    switch (state_) {
      case State::front: {
        front_ += c;
        const auto begins = begins_text(front_);
        if (!begins) break;
        if (*begins) {
          front_.clear();
          state_ = State::text;
        } else {  // none of ours: it is kept to the end
          front_ += arguments.substr(i + 1);
          return out;
        }
        break;
      }
      case State::text:
        if (c != '\\') end_half(out);
        if (c == '\\')
          state_ = State::escape;
        else if (c == '"')
          state_ = State::behind;
        else
          out += c;
        break;
      case State::escape: take_escaped(c, out); break;
      case State::digits: take_digit(c, out); break;
      case State::behind: return out;
    }
  }
  return out;
}

void CustomInput::take_escaped(char c, std::string& out) {
  state_ = State::text;
  if (c != 'u') end_half(out);
  switch (c) {
    case 'n': out += '\n'; break;
    case 't': out += '\t'; break;
    case 'r': out += '\r'; break;
    case 'b': out += '\b'; break;
    case 'f': out += '\f'; break;
    case 'u':
      state_ = State::digits;
      code_ = 0;
      n_digits_ = 0;
      break;
    default: out += c;
  }
}

void CustomInput::take_digit(char c, std::string& out) {
  const int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : 0;
  code_ = code_ * 16 + static_cast<std::uint32_t>(digit);
  if (++n_digits_ < 4) return;
  state_ = State::text;
  const bool is_high = code_ >= 0xD800 && code_ < 0xDC00, is_low = code_ >= 0xDC00 && code_ < 0xE000;
  if (is_low && high_ != 0) {
    unicode::append_utf8(out, 0x10000 + ((std::exchange(high_, 0) - 0xD800) << 10) + (code_ - 0xDC00));
    return;
  }
  end_half(out);
  if (is_high)
    high_ = code_;
  else if (is_low)
    out += unicode::kReplacementUtf8;
  else
    unicode::append_utf8(out, code_);
}

void CustomInput::end_half(std::string& out) {
  if (std::exchange(high_, 0) != 0) out += unicode::kReplacementUtf8;
}

std::string CustomInput::end() {
  std::string rest = std::exchange(front_, {});
  end_half(rest);
  return rest;
}

}  // namespace baton
