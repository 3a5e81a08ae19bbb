/// Recursive descent over Jinja's expression grammar.
#include "jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

#include "jinja/native.h"
#include "jinja/print.h"

namespace baton::jinja {
namespace {

ExpressionBox box(Expression expression) { return std::make_unique<Expression>(std::move(expression)); }

template <class Node>
Expression make(int line, Node node) {
  return Expression{line, std::move(node)};
}

}  // namespace

void ExpressionParser::next() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

Result<void> ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) return error("expected '" + std::string(op) + "', found " + found());
  return {};
}

Result<void> ExpressionParser::expect(TokenKind kind) {
  if (!at(kind)) return error(std::string("expected the end of the tag, found ") + found());
  next();
  return {};
}

Result<std::string> ExpressionParser::expect_name() {
  if (!at(TokenKind::name)) return error("expected a name, found " + found());
  std::string name = current().text;
  next();
  return name;
}

tl::unexpected<Error> ExpressionParser::error_at(int line, const std::string& message, ErrorCode code) {
  return fail(code, "chat template line " + std::to_string(line) + ": " + message);
}

std::string ExpressionParser::found() const {
  switch (current().kind) {
    case TokenKind::end: return "the end of the template";
    case TokenKind::data: return "text";
    case TokenKind::block_begin: return "'{%'";
    case TokenKind::block_end: return "'%}'";
    case TokenKind::variable_begin: return "'{{'";
    case TokenKind::variable_end: return "'}}'";
    case TokenKind::string: return "the string " + represent(std::string_view(current().text).substr(0, 40));
    default: return "'" + current().text.substr(0, 40) + "'";
  }
}

bool ExpressionParser::end_macro() {
  const bool uses_caller = uses_caller_.back();
  uses_caller_.pop_back();
  return uses_caller;
}

Result<void> ExpressionParser::check_unknown() const {
  if (unknown_.empty()) return {};
  return error_at(unknown_.front().line, unknown_.front().message, ErrorCode::unsupported);
}

Result<void> ExpressionParser::enter() {
  if (++depth_ > kMaxNesting)
    return error("expressions and blocks are nested deeper than " + std::to_string(kMaxNesting) + " levels");
  return check_stack();
}

/// A tree is freed, level by level, by the thread that made it.
Result<void> ExpressionParser::check_stack() const {
  if (stack_.has_room(static_cast<std::size_t>(postfix_) * kLevelBytes)) return {};
  return error("expressions and blocks are nested too deep for this thread's stack of " + std::to_string(stack_.n_bytes()) +
               " bytes");
}

Result<void> ExpressionParser::enter_expression() {
  if (open_expressions_++ == 0) postfix_ = 0;
  return enter();
}

void ExpressionParser::leave_expression() {
  --open_expressions_;
  leave();
}

Result<void> ExpressionParser::count_postfix() {
  if (++postfix_ > kMaxPostfix)
    return error("an expression has more than " + std::to_string(kMaxPostfix) + " attributes, items, calls and filters");
  return check_stack();
}

Result<Expression> ExpressionParser::expression() {
  BATON_TRY_VOID(enter_expression());
  const int line = current().line;
  const std::size_t mark = unknown_mark();
  BATON_TRY(Expression value, logical_or());
  while (skip_name("if")) {
    BATON_TRY_VOID(count_postfix());
    Conditional conditional;
    BATON_TRY(Expression condition, logical_or());
    if (skip_name("else")) {
      BATON_TRY(Expression otherwise, expression());
      conditional.no = box(std::move(otherwise));
    }
    conditional.yes = box(std::move(value));
    conditional.condition = box(std::move(condition));
    value = make(line, std::move(conditional));
    forget_unknown(mark);
  }
  leave_expression();
  return value;
}

Result<Expression> ExpressionParser::unconditional() {
  BATON_TRY_VOID(enter_expression());
  auto value = logical_or();
  leave_expression();
  return value;
}

Result<Expression> ExpressionParser::tuple(bool conditional, std::initializer_list<std::string_view> end_names) {
  const int line = current().line;
  Sequence sequence{.items = {}, .is_tuple = false};
  while (true) {
    const bool at_end = at(TokenKind::variable_end) || at(TokenKind::block_end) || at_op(")") ||
                        std::any_of(end_names.begin(), end_names.end(), [&](std::string_view name) { return at_name(name); });
    if (at_end) break;
    BATON_TRY(Expression value, conditional ? expression() : unconditional());
    sequence.items.push_back(std::move(value));
    if (!skip_op(",")) break;
    sequence.is_tuple = true;
  }
  if (sequence.is_tuple) return make(line, std::move(sequence));
  if (sequence.items.empty()) return error("expected an expression, found " + found());
  return std::move(sequence.items.front());
}

template <class Operand, class OperatorHere>
Result<Expression> ExpressionParser::chain(Operand operand, OperatorHere op_here) {
  const int line = current().line;
  BATON_TRY(Expression first, operand());
  Chain chain;
  while (const std::optional<Operator> op = op_here()) {
    BATON_TRY(Expression value, operand());
    chain.rest.emplace_back(*op, box(std::move(value)));
  }
  if (chain.rest.empty()) return first;
  chain.first = box(std::move(first));
  return make(line, std::move(chain));
}

std::optional<Operator> ExpressionParser::skip_one_of(std::initializer_list<std::pair<std::string_view, Operator>> operators) {
  for (const auto& [text, op] : operators)
    if (skip_op(text) || skip_name(text)) return op;
  return std::nullopt;
}

Result<Expression> ExpressionParser::logical_or() {
  return chain([&] { return logical_and(); }, [&] { return skip_one_of({{"or", Operator::logical_or}}); });
}

Result<Expression> ExpressionParser::logical_and() {
  return chain([&] { return logical_not(); }, [&] { return skip_one_of({{"and", Operator::logical_and}}); });
}

Result<Expression> ExpressionParser::logical_not() {
  const int line = current().line;
  if (!skip_name("not")) return comparison();
  BATON_TRY_VOID(enter());
  BATON_TRY(Expression operand, logical_not());
  leave();
  return make(line, Unary{Unary::Op::logical_not, box(std::move(operand))});
}

Result<Expression> ExpressionParser::comparison() {
  return chain([&] { return sum(); },
               [&]() -> std::optional<Operator> {
                 const Token& after = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
                 if (at_name("not") && after.kind == TokenKind::name && after.text == "in") {
                   next();
                   next();
                   return Operator::not_in;
                 }
                 return skip_one_of({{"==", Operator::equal},
                                     {"!=", Operator::not_equal},
                                     {"<", Operator::less},
                                     {"<=", Operator::less_equal},
                                     {">", Operator::greater},
                                     {">=", Operator::greater_equal},
                                     {"in", Operator::in}});
               });
}

Result<Expression> ExpressionParser::sum() {
  return chain([&] { return concat(); }, [&] { return skip_one_of({{"+", Operator::add}, {"-", Operator::subtract}}); });
}

Result<Expression> ExpressionParser::concat() {
  return chain([&] { return product(); }, [&] { return skip_one_of({{"~", Operator::concat}}); });
}

Result<Expression> ExpressionParser::product() {
  return chain(
      [&] { return power(); },
      [&] {
        return skip_one_of(
            {{"*", Operator::multiply}, {"/", Operator::divide}, {"//", Operator::floor_divide}, {"%", Operator::modulo}});
      });
}

Result<Expression> ExpressionParser::power() {
  return chain([&] { return unary(true); }, [&] { return skip_one_of({{"**", Operator::power}}); });
}

Result<Expression> ExpressionParser::unary(bool with_filters) {
  const int line = current().line;
  std::optional<Expression> value;
  if (at_op("-") || at_op("+")) {
    const auto op = at_op("-") ? Unary::Op::negate : Unary::Op::plus;
    next();
    BATON_TRY_VOID(enter());
    BATON_TRY(Expression operand, unary(false));
    leave();
    value = make(line, Unary{op, box(std::move(operand))});
  } else {
    BATON_TRY(value, primary());
  }
  BATON_TRY(Expression reached, postfix(std::move(*value)));
  if (!with_filters) return reached;
  return filters_and_tests(std::move(reached));
}

Result<Expression> ExpressionParser::primary() {
  const int line = current().line;
  if (at(TokenKind::name)) {
    const std::string name = current().text;
    next();
    if (name == "true" || name == "True") return make(line, Literal{true});
    if (name == "false" || name == "False") return make(line, Literal{false});
    if (name == "none" || name == "None") return make(line, Literal{NoneLiteral{}});
    if (name == "caller") uses_caller_.assign(uses_caller_.size(), true);
    return make(line, Name{name});
  }
  if (at_op("(")) {
    next();
    if (skip_op(")")) return make(line, Sequence{.items = {}, .is_tuple = true});
    BATON_TRY(Expression value, tuple(true, {}));
    BATON_TRY_VOID(expect_op(")"));
    return value;
  }
  if (at_op("[")) return list();
  if (at_op("{")) return dict();
  return literal();
}

Result<Expression> ExpressionParser::literal() {
  const Token& token = current();
  const int line = token.line;
  if (at(TokenKind::string)) {
    std::string text;
    for (; at(TokenKind::string); next()) text += current().text;
    return make(line, Literal{std::move(text)});
  }
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (at(TokenKind::integer)) {
    std::int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      return error("the integer " + token.text + " does not fit 64 bits");
    next();
    return make(line, Literal{value});
  }
  if (at(TokenKind::floating)) {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) return error("the number " + token.text + " is out of range");
    next();
    return make(line, Literal{value});
  }
  return error("expected an expression, found " + found());
}

Result<Expression> ExpressionParser::list() {
  const int line = current().line;
  next();
  Sequence sequence{.items = {}, .is_tuple = false};
  while (!at_op("]")) {
    BATON_TRY(Expression value, expression());
    sequence.items.push_back(std::move(value));
    if (!skip_op(",")) break;
  }
  BATON_TRY_VOID(expect_op("]"));
  return make(line, std::move(sequence));
}

Result<Expression> ExpressionParser::dict() {
  const int line = current().line;
  next();
  Mapping mapping;
  while (!at_op("}")) {
    BATON_TRY(Expression key, expression());
    BATON_TRY_VOID(expect_op(":"));
    BATON_TRY(Expression value, expression());
    mapping.pairs.emplace_back(box(std::move(key)), box(std::move(value)));
    if (!skip_op(",")) break;
  }
  BATON_TRY_VOID(expect_op("}"));
  return make(line, std::move(mapping));
}

Result<Expression> ExpressionParser::postfix(Expression object) {
  while (true) {
    const int line = current().line;
    if (skip_op(".")) {
      BATON_TRY_VOID(count_postfix());
      if (at(TokenKind::integer)) {
        BATON_TRY(Expression index, literal());
        object = make(line, Item{box(std::move(object)), box(std::move(index))});
      } else {
        BATON_TRY(std::string name, expect_name());
        object = make(line, Attribute{box(std::move(object)), std::move(name)});
      }
    } else if (skip_op("[")) {
      BATON_TRY(object, subscript(std::move(object), line));
    } else if (at_op("(")) {
      BATON_TRY(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<Expression> ExpressionParser::subscript(Expression object, int line) {
  BATON_TRY_VOID(count_postfix());
  std::vector<ExpressionBox> parts;  // start, stop, step
  bool is_slice = false;
  ExpressionBox part;
  while (true) {
    if (at_op("]") || at_op(":")) {
      parts.push_back(std::move(part));
      if (at_op("]")) break;
      is_slice = true;
      next();
      continue;
    }
    if (part != nullptr || parts.size() > 2) return error("expected ']', found " + found());
    BATON_TRY(Expression value, expression());
    part = box(std::move(value));
  }
  next();
  if (!is_slice && parts.front() == nullptr) return error_at(line, "expected an expression between '[' and ']'");
  if (parts.size() > 3) return error_at(line, "a slice has more than three parts");
  if (!is_slice) return make(line, Item{box(std::move(object)), std::move(parts.front())});
  parts.resize(3);
  return make(line, Slice{box(std::move(object)), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])});
}

Result<Expression> ExpressionParser::call(Expression callee) {
  BATON_TRY_VOID(count_postfix());
  const int line = current().line;
  BATON_TRY(ArgumentList list, arguments());
  return make(line, Call{box(std::move(callee)), std::move(list)});
}

Result<ArgumentList> ExpressionParser::arguments() {
  BATON_TRY_VOID(expect_op("("));
  ArgumentList list;
  while (!at_op(")")) {
    const bool is_named = at(TokenKind::name) && tokens_[at_ + 1].kind == TokenKind::op && tokens_[at_ + 1].text == "=";
    if (skip_op("**")) {
      BATON_TRY(Expression value, expression());
      if (list.star_star != nullptr) return error("a call has more than one '**'");
      list.star_star = box(std::move(value));
    } else if (skip_op("*")) {
      BATON_TRY(Expression value, expression());
      if (list.star != nullptr || list.star_star != nullptr) return error("a call has more than one '*', or one after '**'");
      list.star = box(std::move(value));
    } else if (is_named) {
      std::string name = current().text;
      next();
      next();
      BATON_TRY(Expression value, expression());
      list.named.emplace_back(std::move(name), box(std::move(value)));
    } else {
      if (!list.named.empty() || list.star != nullptr || list.star_star != nullptr)
        return error("a positional argument follows a keyword argument");
      BATON_TRY(Expression value, expression());
      list.positional.push_back(std::move(value));
    }
    if (!skip_op(",")) break;
  }
  BATON_TRY_VOID(expect_op(")"));
  return list;
}

Result<std::string> ExpressionParser::dotted_name() {
  BATON_TRY(std::string name, expect_name());
  while (skip_op(".")) {
    BATON_TRY(const std::string part, expect_name());
    name += "." + part;
  }
  return name;
}

Result<ExpressionBox> ExpressionParser::filters(ExpressionBox head, bool starts_inline) {
  while (starts_inline || skip_op("|")) {
    starts_inline = false;
    BATON_TRY_VOID(count_postfix());
    const int line = current().line;
    Filter filter;
    BATON_TRY(filter.name, dotted_name());
    filter.native = find_filter(filter.name);
    if (filter.native == nullptr) unknown_.push_back({line, "the filter '" + filter.name + "' is not known"});
    if (at_op("(")) {
      BATON_TRY(filter.arguments, arguments());
    }
    filter.object = std::move(head);
    head = box(make(line, std::move(filter)));
  }
  return head;
}

Result<Expression> ExpressionParser::filters_and_tests(Expression object) {
  while (true) {
    if (at_op("|")) {
      BATON_TRY(ExpressionBox filtered, filters(box(std::move(object)), false));
      object = std::move(*filtered);
    } else if (at_name("is")) {
      BATON_TRY(object, test(std::move(object)));
    } else if (at_op("(")) {
      BATON_TRY(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<Expression> ExpressionParser::test(Expression object) {
  const int line = current().line;
  next();
  BATON_TRY_VOID(count_postfix());
  const bool negated = skip_name("not");
  Test test;
  BATON_TRY(test.name, dotted_name());
  if (test.name == "None" || test.name == "True" || test.name == "False") test.name[0] = static_cast<char>(test.name[0] | 0x20);
  test.native = find_test(test.name);
  if (test.native == nullptr) unknown_.push_back({line, "the test '" + test.name + "' is not known"});
  const bool ends = at_name("else") || at_name("or") || at_name("and") || at_name("if") || at_name("in") || at_name("not");
  const bool starts_value = at(TokenKind::name) || at(TokenKind::string) || at(TokenKind::integer) || at(TokenKind::floating) ||
                            at_op("[") || at_op("{");
  if (at_op("(")) {
    BATON_TRY(test.arguments, arguments());
  } else if (starts_value && !ends) {
    if (at_name("is")) return error("tests cannot be chained with 'is'");
    BATON_TRY(Expression value, primary());
    BATON_TRY(value, postfix(std::move(value)));
    test.arguments.positional.push_back(std::move(value));
  }
  test.object = box(std::move(object));
  Expression result = make(line, std::move(test));
  if (!negated) return result;
  return make(line, Unary{Unary::Op::logical_not, box(std::move(result))});
}

}  // namespace baton::jinja
