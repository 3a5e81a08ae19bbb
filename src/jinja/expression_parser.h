/// Parses expressions, with Jinja's precedence, from the tokens of a template.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/limits/stack_space.h"
#include "core/result.h"
#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace baton::jinja {

/// Reads tokens from left to right; the statement parser shares it. Errors name the line and what was found.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  void next();
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_op(std::string_view op) const { return at(TokenKind::op) && current().text == op; }
  bool at_name(std::string_view name) const { return at(TokenKind::name) && current().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  Result<void> expect_op(std::string_view op);
  Result<void> expect(TokenKind kind);
  Result<std::string> expect_name();
  tl::unexpected<Error> error(const std::string& message) const { return error_at(current().line, message); }
  static tl::unexpected<Error> error_at(int line, const std::string& message, ErrorCode code = ErrorCode::invalid_data);
  /// What stands here, for messages.
  std::string found() const;

  // Expressions.
  Result<Expression> expression();
  /// Without `x if y else z` at the top.
  Result<Expression> unconditional();
  /// One expression, or several with commas as a tuple; ends at the tag's end, ')' or one of `end_names`.
  Result<Expression> tuple(bool conditional, std::initializer_list<std::string_view> end_names);
  /// `| name(...)`, repeated, over `head` (null in filter blocks); without a leading bar when `starts_inline`.
  Result<ExpressionBox> filters(ExpressionBox head, bool starts_inline);
  // What the statement parser keeps here because names and filters occur in expressions.
  void begin_macro() { uses_caller_.push_back(false); }
  /// Returns whether the macro's text names `caller`.
  bool end_macro();
  /// Unknown filters and tests are errors, except inside conditionals (as in Jinja): those since `mark` are forgotten.
  std::size_t unknown_mark() const { return unknown_.size(); }
  void forget_unknown(std::size_t mark) { unknown_.resize(mark); }
  Result<void> check_unknown() const;

  /// Nesting of expressions and blocks. Errors beyond kMaxNesting, or what the thread's stack has room for.
  Result<void> enter();
  void leave() { --depth_; }

 private:
  static constexpr int kMaxNesting = 100;
  static constexpr int kMaxPostfix =
      1500;  // .name, [item], (call) and |filter in one outermost expression: bounds the tree's height
  static constexpr std::size_t kLevelBytes = 1024;  // of stack, at most, that freeing a level of the tree takes

  Result<Expression> logical_or();
  Result<Expression> logical_and();
  Result<Expression> logical_not();
  Result<Expression> comparison();
  Result<Expression> sum();
  Result<Expression> concat();
  Result<Expression> product();
  Result<Expression> power();
  Result<Expression> unary(bool with_filters);
  Result<Expression> primary();
  Result<Expression> literal();
  Result<Expression> list();
  Result<Expression> dict();
  Result<Expression> postfix(Expression object);
  Result<Expression> filters_and_tests(Expression object);
  Result<Expression> test(Expression object);
  Result<Expression> subscript(Expression object, int line);
  Result<Expression> call(Expression callee);
  Result<ArgumentList> arguments();
  Result<std::string> dotted_name();
  Result<void> enter_expression();
  void leave_expression();
  Result<void> count_postfix();
  Result<void> check_stack() const;
  /// The operator that stands here, if it is one of these; it is consumed.
  std::optional<Operator> skip_one_of(std::initializer_list<std::pair<std::string_view, Operator>> operators);
  /// A chain of operands with the operators that `op_here` recognises and consumes.
  template <class Operand, class OperatorHere>
  Result<Expression> chain(Operand operand, OperatorHere op_here);

  struct Unknown {
    int line;
    std::string message;
  };
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  StackSpace stack_;
  int depth_ = 0;
  int open_expressions_ = 0;
  int postfix_ = 0;
  std::vector<bool> uses_caller_;  ///< by open macro
  std::vector<Unknown> unknown_;
};

}  // namespace baton::jinja
