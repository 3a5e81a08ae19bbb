/// Walks a template's syntax tree and writes the text.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "jinja/ast.h"
#include "jinja/native.h"
#include "jinja/value.h"

namespace baton::jinja {

/// One render: made, run once and dropped. Errors say "chat template line N, in CONSTRUCT: ..." except those of
/// raise_exception, whose text is the template's own.
class Interpreter {
 public:
  explicit Interpreter(Arena& arena) : arena_(arena) {}

  /// The text of `body` with the variables of `scope`.
  Result<std::string> run(const Body& body, Scope* scope);

 private:
  enum class Flow : std::uint8_t { normal, break_loop, continue_loop };

  // Statements (interpreter.cpp).
  Result<Flow> execute(const Body& body, Scope* scope);
  Result<Flow> execute(const Statement& statement, Scope* scope);
  Result<Flow> execute(const Text& node, Scope* scope);
  Result<Flow> execute(const Print& node, Scope* scope);
  Result<Flow> execute(const If& node, Scope* scope);
  Result<Flow> execute(const For& node, Scope* scope);
  Result<Flow> execute(const Set& node, Scope* scope);
  Result<Flow> execute(const SetBlock& node, Scope* scope);
  Result<Flow> execute(const Macro& node, Scope* scope);
  Result<Flow> execute(const CallBlock& node, Scope* scope);
  Result<Flow> execute(const FilterBlock& node, Scope* scope);
  Result<Flow> execute(const Block& node, Scope* scope);
  Result<Flow> execute(const LoopControl& node, Scope* scope);
  Result<std::vector<Value>> loop_items(const For& node, Value sequence, Scope* scope);
  Result<void> assign(const Target& target, Value value, Scope* scope);
  void write(std::string_view text);
  void write(Value value);
  /// Returns what `body` writes, without adding it to the output.
  Result<Value> capture(const Body& body, Scope* scope);

  // Expressions (evaluate.cpp).
  Result<Value> evaluate(const Expression& expression, Scope* scope);
  /// The variable, or an undefined value that refers to `name`.
  Value variable(std::string_view name, const Scope* scope);
  Result<Value> evaluate(const Literal& node, Scope* scope);
  Result<Value> evaluate(const Name& node, Scope* scope);
  Result<Value> evaluate(const Attribute& node, Scope* scope);
  Result<Value> evaluate(const Item& node, Scope* scope);
  Result<Value> evaluate(const Slice& node, Scope* scope);
  Result<Value> evaluate(const Call& node, Scope* scope);
  Result<Value> evaluate(const Filter& node, Scope* scope);
  Result<Value> evaluate(const Test& node, Scope* scope);
  Result<Value> evaluate(const Unary& node, Scope* scope);
  Result<Value> evaluate(const Chain& node, Scope* scope);
  Result<Value> evaluate(const Conditional& node, Scope* scope);
  Result<Value> evaluate(const Sequence& node, Scope* scope);
  Result<Value> evaluate(const Mapping& node, Scope* scope);
  Result<Value> filter(const ExpressionBox& chain, Value head, Scope* scope);
  Result<Value> evaluate_call(const Call& node, Scope* scope, const Value* caller);
  Result<Arguments> evaluate_arguments(const ArgumentList& list, Scope* scope);
  Result<Value> call(Value callee, const Arguments& arguments);
  Result<Value> call_macro(const Function& function, const Arguments& arguments);
  Result<void> bind_macro(const Macro& macro, const Arguments& arguments, Scope* scope);

  bool enter();
  /// Adds the place to an error that has none.
  tl::unexpected<Error> located(Error error, int line, const std::string& construct);

  Arena& arena_;
  std::string output_;
  Value filter_head_;  ///< what the innermost filter of a filter block filters
  bool is_located_ = false;
  int depth_ = 0;
  std::int64_t iterations_ = 0;
};

}  // namespace baton::jinja
