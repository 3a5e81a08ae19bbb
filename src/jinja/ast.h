/// The syntax tree of a template: what the parser makes and the interpreter walks. Immutable after parsing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace baton::jinja {

struct Native;
struct Expression;
struct Statement;
using ExpressionBox = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,  // arithmetic
  concat,
  logical_and,
  logical_or,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,  // comparison
};

struct NoneLiteral {};
using Constant = std::variant<NoneLiteral, bool, std::int64_t, double, std::string>;
struct Literal {
  Constant value;
};
struct Name {
  std::string name;
};
struct Attribute {
  ExpressionBox object;
  std::string name;
};
struct Item {
  ExpressionBox object, index;
};
/// object[start:stop:step]; absent parts are null.
struct Slice {
  ExpressionBox object, start, stop, step;
};
struct ArgumentList {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, ExpressionBox>> named;
  ExpressionBox star, star_star;  ///< *list and **dict, or null
};
struct Call {
  ExpressionBox callee;
  ArgumentList arguments;
};
/// `object | name(arguments)`. `native` is null for a filter that does not exist, which Jinja allows inside
/// conditionals: running it is an error. `object` is null at the head of a filter block.
struct Filter {
  ExpressionBox object;
  std::string name;
  const Native* native = nullptr;
  ArgumentList arguments;
};
/// `object is name(arguments)`; `native` as for filters.
struct Test {
  ExpressionBox object;
  std::string name;
  const Native* native = nullptr;
  ArgumentList arguments;
};
struct Unary {
  enum class Op : std::uint8_t { negate, plus, logical_not } op;
  ExpressionBox operand;
};
/// first op operand op operand...: evaluated in a loop, so that long sums do not nest.
struct Chain {
  ExpressionBox first;
  std::vector<std::pair<Operator, ExpressionBox>> rest;
};
struct Conditional {
  ExpressionBox condition, yes, no;  ///< `no` may be null
};
struct Sequence {
  std::vector<Expression> items;
  bool is_tuple = false;
};
struct Mapping {
  std::vector<std::pair<ExpressionBox, ExpressionBox>> pairs;
};

struct Expression {
  int line = 0;
  std::variant<Literal, Name, Attribute, Item, Slice, Call, Filter, Test, Unary, Chain, Conditional, Sequence, Mapping> node;
};

/// What is assigned to: a name, a namespace's attribute (`ns.x`), or several of them.
struct Target {
  std::string name;
  std::string attribute;      ///< empty unless ns.attribute
  std::vector<Target> parts;  ///< of a tuple
  bool is_tuple = false;
  int line = 0;
};

struct Text {
  std::string text;
};
struct Print {
  Expression value;
};
struct If {
  struct Branch {
    ExpressionBox condition;  ///< null for else
    Body body;
  };
  std::vector<Branch> branches;
};
struct For {
  Target target;
  ExpressionBox sequence;
  ExpressionBox condition;  ///< may be null
  Body body, otherwise;
};
struct Set {
  Target target;
  Expression value;
};
struct SetBlock {
  Target target;
  ExpressionBox filter;  ///< a chain of Filters whose innermost object is null, or null
  Body body;
};
struct Macro {
  std::string name;
  struct Parameter {
    std::string name;
    ExpressionBox fallback;  ///< may be null
  };
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false;
};
/// {% call(parameters) callee(arguments) %}: `caller` is the body as a macro.
struct CallBlock {
  Macro caller;
  Expression call;
};
struct FilterBlock {
  ExpressionBox filter;
  Body body;
};
/// {% with %} and {% generation %}: a body with variables of its own.
struct Block {
  std::vector<std::pair<Target, Expression>> assignments;
  Body body;
};
struct LoopControl {
  bool is_break = false;
};

struct Statement {
  int line = 0;
  std::variant<Text, Print, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, Block, LoopControl> node;
};

}  // namespace baton::jinja
