/// Expressions and calls.
#include <algorithm>

#include "jinja/interpreter.h"
#include "jinja/operators.h"
#include "jinja/print.h"

namespace baton::jinja {
namespace {

std::string_view operator_text(Operator op) {
  static constexpr std::string_view kTexts[] = {"+",  "-",  "*",  "/", "//", "%", "**", "~",  "and",
                                                "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  static_assert(std::size(kTexts) == static_cast<std::size_t>(Operator::not_in) + 1);
  return kTexts[static_cast<std::size_t>(op)];
}

/// What errors call the expression.
struct Describe {
  std::string operator()(const Literal&) const { return "a literal"; }
  std::string operator()(const Name& node) const { return "'" + node.name + "'"; }
  std::string operator()(const Attribute& node) const { return "'." + node.name + "'"; }
  std::string operator()(const Item&) const { return "'[...]'"; }
  std::string operator()(const Slice&) const { return "a slice"; }
  std::string operator()(const Call& node) const {
    if (const auto* name = std::get_if<Name>(&node.callee->node)) return "the call of '" + name->name + "'";
    if (const auto* attribute = std::get_if<Attribute>(&node.callee->node)) return "the call of '." + attribute->name + "'";
    return "a call";
  }
  std::string operator()(const Filter& node) const { return "filter '" + node.name + "'"; }
  std::string operator()(const Test& node) const { return "test '" + node.name + "'"; }
  std::string operator()(const Unary& node) const { return node.op == Unary::Op::negate ? "operator '-'" : "operator '+'"; }
  std::string operator()(const Chain& node) const {
    return "operator '" + std::string(operator_text(node.rest.front().first)) + "'";
  }
  std::string operator()(const Conditional&) const { return "an inline 'if'"; }
  std::string operator()(const Sequence&) const { return "a list"; }
  std::string operator()(const Mapping&) const { return "a dict"; }
};

bool is_comparison(Operator op) { return op >= Operator::equal; }

}  // namespace

Result<Value> Interpreter::evaluate(const Expression& expression, Scope* scope) {
  if (!enter()) return located(fail_exhausted(arena_).value(), expression.line, std::visit(Describe(), expression.node));
  auto value = std::visit([&](const auto& node) { return evaluate(node, scope); }, expression.node);
  --depth_;
  if (value && arena_.is_exhausted()) value = fail_exhausted(arena_);
  if (!value) return located(std::move(value.error()), expression.line, std::visit(Describe(), expression.node));
  return value;
}

Result<Value> Interpreter::evaluate(const Literal& node, Scope*) {
  struct ToValue {
    Value operator()(const NoneLiteral&) const { return Value::none(); }
    Value operator()(bool value) const { return Value::boolean(value); }
    Value operator()(std::int64_t value) const { return Value::integer(value); }
    Value operator()(double value) const { return Value::floating(value); }
    Value operator()(const std::string& value) const { return Value::string(value); }
  };
  return std::visit(ToValue(), node.value);
}

Value Interpreter::variable(std::string_view name, const Scope* scope) {
  std::size_t n_scopes = 0;
  for (; scope != nullptr; scope = scope->parent, ++n_scopes) {
    if (n_scopes % 16 == 15) arena_.spend(1);  // a macro that defines a macro that defines...
    if (const Value* value = scope->variables.find(name)) return *value;
  }
  return Value::undefined(name);
}

Result<Value> Interpreter::evaluate(const Name& node, Scope* scope) { return variable(node.name, scope); }

Result<Value> Interpreter::evaluate(const Attribute& node, Scope* scope) {
  BATON_TRY(const Value object, evaluate(*node.object, scope));
  return attribute(arena_, object, node.name);
}

Result<Value> Interpreter::evaluate(const Item& node, Scope* scope) {
  BATON_TRY(const Value object, evaluate(*node.object, scope));
  BATON_TRY(const Value index, evaluate(*node.index, scope));
  return item(arena_, object, index);
}

Result<Value> Interpreter::evaluate(const Slice& node, Scope* scope) {
  BATON_TRY(const Value object, evaluate(*node.object, scope));
  std::optional<Value> parts[3];
  const ExpressionBox* sources[3] = {&node.start, &node.stop, &node.step};
  for (int i = 0; i < 3; ++i) {
    if (*sources[i] == nullptr) continue;
    BATON_TRY(parts[i], evaluate(**sources[i], scope));
  }
  return slice(arena_, object, parts[0], parts[1], parts[2]);
}

Result<Value> Interpreter::evaluate(const Call& node, Scope* scope) { return evaluate_call(node, scope, nullptr); }

Result<Value> Interpreter::evaluate(const Filter& node, Scope* scope) {
  Value object = filter_head_;
  if (node.object != nullptr) {
    BATON_TRY(object, evaluate(*node.object, scope));
  }
  BATON_TRY(const Arguments arguments, evaluate_arguments(node.arguments, scope));
  if (node.native == nullptr) return fail(ErrorCode::unsupported, "the filter is not known");
  return run_native(arena_, *node.native, object, arguments);
}

Result<Value> Interpreter::evaluate(const Test& node, Scope* scope) {
  BATON_TRY(const Value object, evaluate(*node.object, scope));
  BATON_TRY(const Arguments arguments, evaluate_arguments(node.arguments, scope));
  if (node.native == nullptr) return fail(ErrorCode::unsupported, "the test is not known");
  return run_native(arena_, *node.native, object, arguments);
}

Result<Value> Interpreter::evaluate(const Unary& node, Scope* scope) {
  BATON_TRY(const Value value, evaluate(*node.operand, scope));
  if (node.op == Unary::Op::logical_not) return Value::boolean(!truthy(value));
  BATON_TRY(const Value negated, negate(value));
  if (node.op == Unary::Op::negate) return negated;
  return value.is(Kind::boolean) ? Value::integer(value.as_int()) : value;
}

Result<Value> Interpreter::evaluate(const Chain& node, Scope* scope) {
  BATON_TRY(Value left, evaluate(*node.first, scope));
  for (std::size_t i = 0; i < node.rest.size(); ++i) {
    const auto& [op, operand] = node.rest[i];
    if (op == Operator::logical_or || op == Operator::logical_and) {
      if (truthy(left) == (op == Operator::logical_or)) return left;
      BATON_TRY(left, evaluate(*operand, scope));
      continue;
    }
    BATON_TRY(const Value right, evaluate(*operand, scope));
    BATON_TRY(const Value result, apply(arena_, op, left, right));
    if (is_comparison(op)) {  // a < b < c is a < b and b < c
      if (i + 1 == node.rest.size() || !truthy(result)) return result;
      left = right;
    } else {
      left = result;
    }
  }
  return left;
}

Result<Value> Interpreter::evaluate(const Conditional& node, Scope* scope) {
  BATON_TRY(const Value condition, evaluate(*node.condition, scope));
  if (truthy(condition)) return evaluate(*node.yes, scope);
  if (node.no != nullptr) return evaluate(*node.no, scope);
  return Value::undefined("the value of an inline 'if' without 'else'");
}

Result<Value> Interpreter::evaluate(const Sequence& node, Scope* scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const Expression& expression : node.items) {
    BATON_TRY(const Value value, evaluate(expression, scope));
    items.push_back(value);
  }
  return arena_.list(node.is_tuple ? List::Flavor::tuple : List::Flavor::list, std::move(items));
}

Result<Value> Interpreter::evaluate(const Mapping& node, Scope* scope) {
  Dict* dict = arena_.dict();
  for (const auto& [key_expression, value_expression] : node.pairs) {
    BATON_TRY(const Value key, evaluate(*key_expression, scope));
    BATON_TRY(const Value value, evaluate(*value_expression, scope));
    BATON_TRY_VOID(check_hashable(key));
    arena_.set(*dict, key, value);
  }
  return Value::dict(dict);
}

Result<Value> Interpreter::filter(const ExpressionBox& chain, Value head, Scope* scope) {
  filter_head_ = head;  // read before any argument is evaluated
  return evaluate(*chain, scope);
}

Result<Arguments> Interpreter::evaluate_arguments(const ArgumentList& list, Scope* scope) {
  Arguments arguments;
  for (const Expression& expression : list.positional) {
    BATON_TRY(const Value value, evaluate(expression, scope));
    arguments.positional.push_back(value);
  }
  if (list.star != nullptr) {
    BATON_TRY(const Value more, evaluate(*list.star, scope));
    BATON_TRY(const std::vector<Value> items, elements(arena_, more));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, expression] : list.named) {
    BATON_TRY(const Value value, evaluate(*expression, scope));
    arguments.named.emplace_back(name, value);
  }
  if (list.star_star != nullptr) {
    BATON_TRY(const Value more, evaluate(*list.star_star, scope));
    if (!more.is(Kind::dict)) return type_error("argument after ** must be a mapping, not " + std::string(type_name(more)));
    arena_.spend(more.as_dict()->entries.size());
    for (const auto& [key, value] : more.as_dict()->entries) {
      if (!key.is(Kind::string)) return type_error("keywords must be strings");
      arguments.named.emplace_back(key.as_string(), value);
    }
  }
  return arguments;
}

Result<Value> Interpreter::evaluate_call(const Call& node, Scope* scope, const Value* caller) {
  BATON_TRY(const Value callee, evaluate(*node.callee, scope));
  BATON_TRY(Arguments arguments, evaluate_arguments(node.arguments, scope));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return call(callee, arguments);
}

Result<Value> Interpreter::call(Value callee, const Arguments& arguments) {
  if (callee.is(Kind::undefined)) return type_error(undefined_message(callee));
  if (!callee.is(Kind::function)) return type_error("'" + std::string(type_name(callee)) + "' object is not callable");
  const Function& function = *callee.as_function();
  if (function.macro != nullptr) return call_macro(function, arguments);
  auto result = run_native(arena_, *function.native, function.self, arguments);
  if (!result && function.native == find_global("raise_exception")) is_located_ = true;  // the message is the template's own
  return result;
}

Result<void> Interpreter::bind_macro(const Macro& macro, const Arguments& arguments, Scope* scope) {
  const std::size_t n = macro.parameters.size();
  std::vector<std::pair<std::string_view, Value>> extra = arguments.named;
  for (std::size_t i = 0; i < n; ++i) {
    if (!arena_.spend(1 + extra.size())) return fail_exhausted(arena_);
    const Macro::Parameter& parameter = macro.parameters[i];
    const auto named = std::find_if(extra.begin(), extra.end(), [&](const auto& pair) { return pair.first == parameter.name; });
    if (i < arguments.positional.size()) {
      if (named != extra.end())
        return type_error("macro '" + macro.name + "' got multiple values for argument '" + parameter.name + "'");
      arena_.set(*scope, parameter.name, arguments.positional[i]);
    } else if (named != extra.end()) {
      arena_.set(*scope, parameter.name, named->second);
      extra.erase(named);
    } else if (parameter.fallback != nullptr) {
      BATON_TRY(const Value fallback, evaluate(*parameter.fallback, scope));
      arena_.set(*scope, parameter.name, fallback);
    } else {
      arena_.set(*scope, parameter.name, Value::undefined(parameter.name));
    }
  }
  if (macro.uses_caller) {
    const auto caller = std::find_if(extra.begin(), extra.end(), [](const auto& pair) { return pair.first == "caller"; });
    arena_.set(*scope, "caller", caller == extra.end() ? Value::undefined("caller") : caller->second);
    if (caller != extra.end()) extra.erase(caller);
  }
  if (!extra.empty())
    return type_error("macro '" + macro.name + "' takes no keyword argument '" + std::string(extra.front().first) + "'");
  if (arguments.positional.size() > n)
    return type_error("macro '" + macro.name + "' takes not more than " + std::to_string(n) + " argument(s)");
  return {};
}

Result<Value> Interpreter::call_macro(const Function& function, const Arguments& arguments) {
  Scope* scope = arena_.scope(function.closure);
  BATON_TRY_VOID(bind_macro(*function.macro, arguments, scope));
  return capture(function.macro->body, scope);
}

}  // namespace baton::jinja
