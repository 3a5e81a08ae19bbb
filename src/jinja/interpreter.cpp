/// Statements.
#include "jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "jinja/operators.h"
#include "jinja/print.h"

namespace baton::jinja {
namespace {

std::string_view construct_of(const Statement& statement) {
  static constexpr std::string_view names[] = {"text",           "output",       "'if'",        "'for'",
                                               "'set'",          "'set' block",  "'macro'",     "'call' block",
                                               "'filter' block", "'with' block", "loop control"};
  static_assert(std::size(names) == std::variant_size_v<decltype(Statement::node)>);
  return names[statement.node.index()];
}

}  // namespace

Result<std::string> Interpreter::run(const Body& body, Scope* scope) {
  BATON_TRY_VOID(execute(body, scope));
  if (arena_.is_exhausted()) return fail_exhausted(arena_);
  return std::move(output_);
}

bool Interpreter::enter() {
  if (++depth_ > arena_.limits().depth) arena_.exhaust("depth");
  return arena_.has_stack() && arena_.spend(1);
}

tl::unexpected<Error> Interpreter::located(Error error, int line, const std::string& construct) {
  if (!std::exchange(is_located_, true))
    error.message = "chat template line " + std::to_string(line) + ", in " + construct + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

void Interpreter::write(std::string_view text) {
  if (text.size() > arena_.limits().output_bytes - std::min(arena_.limits().output_bytes, output_.size())) {
    arena_.exhaust("output");
    return;
  }
  if (arena_.spend_text(text.size()) && arena_.take(text.size())) output_ += text;
}

void Interpreter::write(Value value) { write(to_text(arena_, value).as_string()); }

Result<Value> Interpreter::capture(const Body& body, Scope* scope) {
  std::string outer = std::exchange(output_, {});
  auto flow = execute(body, scope);
  std::string inner = std::exchange(output_, std::move(outer));
  if (!flow) return tl::unexpected<Error>(std::move(flow.error()));
  return arena_.text(std::move(inner));
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body, Scope* scope) {
  for (const Statement& statement : body) {
    BATON_TRY(const Flow flow, execute(statement, scope));
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement, Scope* scope) {
  if (!enter()) return located(fail_exhausted(arena_).value(), statement.line, std::string(construct_of(statement)));
  auto flow = std::visit([&](const auto& node) { return execute(node, scope); }, statement.node);
  --depth_;
  if (flow && arena_.is_exhausted()) flow = fail_exhausted(arena_);
  if (!flow) return located(std::move(flow.error()), statement.line, std::string(construct_of(statement)));
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute(const Text& node, Scope*) {
  write(node.text);
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const Print& node, Scope* scope) {
  BATON_TRY(const Value value, evaluate(node.value, scope));
  write(value);
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const If& node, Scope* scope) {
  for (const If::Branch& branch : node.branches) {
    if (branch.condition != nullptr) {
      BATON_TRY(const Value condition, evaluate(*branch.condition, scope));
      if (!truthy(condition)) continue;
    }
    return execute(branch.body, scope);
  }
  return Flow::normal;
}

/// The elements that pass the loop's condition.
Result<std::vector<Value>> Interpreter::loop_items(const For& node, Value sequence, Scope* scope) {
  BATON_TRY(std::vector<Value> items, elements(arena_, sequence));
  if (node.condition == nullptr) return items;
  std::vector<Value> passed;
  for (const Value value : items) {
    Scope* inner = arena_.scope(scope);
    BATON_TRY_VOID(assign(node.target, value, inner));
    BATON_TRY(const Value condition, evaluate(*node.condition, inner));
    if (truthy(condition)) passed.push_back(value);
  }
  return passed;
}

Result<Interpreter::Flow> Interpreter::execute(const For& node, Scope* scope) {
  BATON_TRY(const Value sequence, evaluate(*node.sequence, scope));
  BATON_TRY(std::vector<Value> items, loop_items(node, sequence, scope));
  if (items.empty()) return execute(node.otherwise, arena_.scope(scope));
  if (!arena_.take(items.size() * sizeof(Value))) return fail_exhausted(arena_);
  Loop* state = arena_.loop();
  state->items = std::move(items);
  for (; state->index0 < state->items.size(); ++state->index0) {
    if (++iterations_ > arena_.limits().loop_iterations) arena_.exhaust("iterations");
    if (!arena_.spend(1)) return fail_exhausted(arena_);
    Scope* inner = arena_.scope(scope);
    arena_.set(*inner, "loop", Value::loop(state));
    BATON_TRY_VOID(assign(node.target, state->items[state->index0], inner));
    BATON_TRY(const Flow flow, execute(node.body, inner));
    if (flow == Flow::break_loop) break;
  }
  return Flow::normal;
}

Result<void> Interpreter::assign(const Target& target, Value value, Scope* scope) {
  if (target.is_tuple) {
    BATON_TRY(const std::vector<Value> parts, elements(arena_, value));
    if (parts.size() < target.parts.size())
      return type_error("not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
                        std::to_string(parts.size()) + ")");
    if (parts.size() > target.parts.size())
      return type_error("too many values to unpack (expected " + std::to_string(target.parts.size()) + ")");
    for (std::size_t i = 0; i < parts.size(); ++i) BATON_TRY_VOID(assign(target.parts[i], parts[i], scope));
    return {};
  }
  if (target.attribute.empty()) {
    arena_.set(*scope, target.name, value);
    return {};
  }
  const Value object = variable(target.name, scope);
  if (object.is(Kind::undefined)) return type_error(undefined_message(object));
  if (!object.is(Kind::name_space)) return type_error("cannot assign attribute on non-namespace object '" + target.name + "'");
  arena_.set(*object.as_dict(), Value::string(target.attribute), value);
  return {};
}

Result<Interpreter::Flow> Interpreter::execute(const Set& node, Scope* scope) {
  BATON_TRY(const Value value, evaluate(node.value, scope));
  BATON_TRY_VOID(assign(node.target, value, scope));
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const SetBlock& node, Scope* scope) {
  BATON_TRY(Value value, capture(node.body, arena_.scope(scope)));
  if (node.filter != nullptr) {
    BATON_TRY(value, filter(node.filter, value, scope));
  }
  BATON_TRY_VOID(assign(node.target, value, scope));
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const Macro& node, Scope* scope) {
  arena_.set(*scope, node.name, arena_.function(Function{.name = node.name, .macro = &node, .closure = scope}));
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const CallBlock& node, Scope* scope) {
  const Value caller = arena_.function(Function{.name = node.caller.name, .macro = &node.caller, .closure = scope});
  BATON_TRY(const Value value, evaluate_call(std::get<Call>(node.call.node), scope, &caller));
  write(value);
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const FilterBlock& node, Scope* scope) {
  BATON_TRY(const Value text, capture(node.body, arena_.scope(scope)));
  BATON_TRY(const Value filtered, filter(node.filter, text, scope));
  write(filtered);
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const Block& node, Scope* scope) {
  Scope* inner = arena_.scope(scope);
  for (const auto& [target, expression] : node.assignments) {
    BATON_TRY(const Value value, evaluate(expression, scope));
    BATON_TRY_VOID(assign(target, value, inner));
  }
  return execute(node.body, inner);
}

Result<Interpreter::Flow> Interpreter::execute(const LoopControl& node, Scope*) {
  return node.is_break ? Flow::break_loop : Flow::continue_loop;
}

}  // namespace baton::jinja
