/// The texts of JSON as expressions: what schemas put values together from.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/limits/stack_space.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"
#include "io/json.h"

namespace baton::grammar {

/// Where a JSON text may have spaces. Never in front of it, after it, in front of a comma or a colon.
enum class JsonSpaces {
  /// After a colon one space; after a comma and inside of brackets one space, or a line end (LF or CRLF) and up to
  /// 64 spaces and tabs. A model can therefore indent, and cannot write spaces without end.
  readable,
  /// Nowhere.
  none,
};

/// Pieces of JSON, each made once. Thread: one at a time.
class JsonText {
 public:
  /// `expressions` and `meter` must outlive it.
  JsonText(Expressions& expressions, JsonSpaces spaces, WorkMeter& meter)
      : expressions_(expressions), spaces_policy_(spaces), meter_(meter) {}

  /// The rules of any value and any object.
  Result<ExprId> value();
  Result<ExprId> object();
  Result<ExprId> array();
  /// Any string, in quotes and with any escapes; surrogates come in pairs.
  Result<ExprId> string();
  /// Strings whose text is in `content`, escaped in the shortest way only.
  Result<ExprId> string_of(const Dfa& content);
  /// Strings of so many characters, as a rule: those of string(), or with `content` those of string_of. nothing() where there is
  /// none.
  Result<ExprId> counted_string(std::string name, const std::optional<Dfa>& content, const LengthBounds& length);
  ExprId literal_string(std::string_view text);
  ExprId number();
  /// One value, its strings escaped in the shortest way, its objects in their order; a number that is an integer has
  /// no fraction.
  Result<ExprId> literal(const json::Value& value);

  /// Spaces inside of brackets and after a comma; spaces after a colon.
  ExprId spaces();
  ExprId colon();
  ExprId comma();

  Expressions& expressions() { return expressions_; }

 private:
  Result<ExprId> character();
  Result<const Dfa*> characters();
  ExprId list(std::string_view open, ExprId element, std::string_view close);

  Expressions& expressions_;
  const JsonSpaces spaces_policy_;
  WorkMeter& meter_;
  StackSpace stack_;
  std::optional<RuleId> value_, object_, array_, string_, number_, spaces_rule_;
  std::optional<ExprId> character_;
  std::optional<Dfa> characters_;  // any number of them
};

/// How an integer or a number is written in a literal and in the bounds of a schema: without exponent.
std::string plain_decimal(const json::Value& number);

}  // namespace baton::grammar
