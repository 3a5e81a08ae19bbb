/// The statements: one function for each tag.
#include "jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "jinja/expression_parser.h"

namespace baton::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

ExpressionBox box(Expression expression) { return std::make_unique<Expression>(std::move(expression)); }

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  Result<Body> run() {
    BATON_TRY(Body body, statements({}, "", 0));
    BATON_TRY_VOID(in_.check_unknown());
    return body;
  }

 private:
  /// Statements up to a tag in `ends`, whose name is the current token then; without `ends`, up to the end of the
  /// template.
  Result<Body> statements(Names ends, std::string_view opener, int opened_on) {
    BATON_TRY_VOID(in_.enter());
    Body body;
    while (true) {
      const int line = in_.current().line;
      if (in_.at(TokenKind::end)) {
        if (ends.size() == 0) break;
        return in_.error_at(opened_on, "the '" + std::string(opener) + "' block is never closed");
      }
      if (in_.at(TokenKind::data)) {
        body.push_back({line, Text{in_.current().text}});
        in_.next();
      } else if (in_.at(TokenKind::variable_begin)) {
        in_.next();
        BATON_TRY(Expression value, in_.tuple(true, {}));
        if (!in_.at(TokenKind::variable_end)) return in_.error("expected '}}', found " + in_.found());
        in_.next();
        body.push_back({line, Print{std::move(value)}});
      } else {
        in_.next();  // {%
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return in_.at_name(end); })) break;
        BATON_TRY(Statement statement, tag(opener, opened_on));
        body.push_back(std::move(statement));
      }
    }
    in_.leave();
    return body;
  }

  /// The statements of a block that ends with one tag, through that tag.
  Result<Body> block(std::string_view end, std::string_view opener, int opened_on) {
    BATON_TRY(Body body, statements({end}, opener, opened_on));
    in_.next();
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    return body;
  }

  Result<Statement> tag(std::string_view opener, int opened_on) {
    const int line = in_.current().line;
    BATON_TRY(const std::string name, in_.expect_name());
    if (name == "if") return if_tag(line);
    if (name == "for") return for_tag(line);
    if (name == "set") return set_tag(line);
    if (name == "macro") return macro_tag(line);
    if (name == "call") return call_tag(line);
    if (name == "filter") return filter_tag(line);
    if (name == "with") return with_tag(line);
    if (name == "generation") {
      BATON_TRY_VOID(in_.expect(TokenKind::block_end));
      BATON_TRY(Body body, outside_loop([&] { return block("endgeneration", "generation", line); }));
      return Statement{line, Block{.assignments = {}, .body = std::move(body)}};
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return in_.error_at(line, "'" + name + "' outside a loop");
      BATON_TRY_VOID(in_.expect(TokenKind::block_end));
      return Statement{line, LoopControl{name == "break"}};
    }
    static constexpr std::string_view unsupported[] = {"block",      "extends", "include", "import", "from",
                                                       "autoescape", "trans",   "do",      "debug",  "print"};
    if (std::find(std::begin(unsupported), std::end(unsupported), name) != std::end(unsupported))
      return in_.error_at(line, "the tag '" + name + "' is not supported", ErrorCode::unsupported);
    if (name.starts_with("end") || name == "else" || name == "elif") {
      const std::string inside = opener.empty()
                                     ? "no block is open"
                                     : "the open block is '" + std::string(opener) + "' of line " + std::to_string(opened_on);
      return in_.error_at(line, "unexpected tag '" + name + "': " + inside);
    }
    return in_.error_at(line, "unknown tag '" + name + "'");
  }

  Result<Statement> if_tag(int line) {
    If node;
    const std::size_t mark = in_.unknown_mark();
    bool is_else = false;
    while (true) {
      If::Branch branch;
      if (!is_else) {
        BATON_TRY(Expression condition, in_.tuple(false, {}));
        branch.condition = box(std::move(condition));
      }
      BATON_TRY_VOID(in_.expect(TokenKind::block_end));
      BATON_TRY(branch.body, is_else ? statements({"endif"}, "if", line) : statements({"elif", "else", "endif"}, "if", line));
      node.branches.push_back(std::move(branch));
      is_else = in_.at_name("else");
      const bool is_end = in_.at_name("endif");
      in_.next();
      if (is_end) break;
    }
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    in_.forget_unknown(mark);
    return Statement{line, std::move(node)};
  }

  Result<Statement> for_tag(int line) {
    For node;
    BATON_TRY(node.target, target(false));
    if (!in_.skip_name("in")) return in_.error("expected 'in', found " + in_.found());
    BATON_TRY(Expression sequence, in_.tuple(false, {"recursive", "if"}));
    node.sequence = box(std::move(sequence));
    if (in_.skip_name("if")) {
      BATON_TRY(Expression condition, in_.expression());
      node.condition = box(std::move(condition));
    }
    if (in_.at_name("recursive")) return in_.error_at(line, "recursive loops are not supported", ErrorCode::unsupported);
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    ++loops_;
    BATON_TRY(node.body, statements({"else", "endfor"}, "for", line));
    --loops_;
    if (in_.skip_name("else")) {
      BATON_TRY_VOID(in_.expect(TokenKind::block_end));
      BATON_TRY(node.otherwise, statements({"endfor"}, "for", line));
    }
    in_.next();
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    return Statement{line, std::move(node)};
  }

  Result<Statement> set_tag(int line) {
    BATON_TRY(Target to, target(true));
    if (in_.skip_op("=")) {
      BATON_TRY(Expression value, in_.tuple(true, {}));
      BATON_TRY_VOID(in_.expect(TokenKind::block_end));
      return Statement{line, Set{std::move(to), std::move(value)}};
    }
    if (to.is_tuple) return in_.error("expected '=', found " + in_.found());
    SetBlock node{.target = std::move(to), .filter = nullptr, .body = {}};
    BATON_TRY(node.filter, in_.filters(nullptr, false));
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    BATON_TRY(node.body, outside_loop([&] { return block("endset", "set", line); }));
    return Statement{line, std::move(node)};
  }

  Result<Statement> macro_tag(int line) {
    Macro node;
    BATON_TRY(node.name, in_.expect_name());
    BATON_TRY_VOID(macro_rest(node, "endmacro", "macro", line, true));
    return Statement{line, std::move(node)};
  }

  /// Parameters and body of a macro or call block.
  Result<void> macro_rest(Macro& node, std::string_view end, std::string_view opener, int line, bool reads_parameters) {
    in_.begin_macro();
    if (reads_parameters) {
      BATON_TRY(node.parameters, parameters());
      BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    }
    BATON_TRY(node.body, outside_loop([&] { return block(end, opener, line); }));
    const bool declares_caller = std::any_of(node.parameters.begin(), node.parameters.end(),
                                             [](const auto& parameter) { return parameter.name == "caller"; });
    node.uses_caller = in_.end_macro() && !declares_caller;
    return {};
  }

  Result<Statement> call_tag(int line) {
    Macro caller;
    caller.name = "caller";
    if (in_.at_op("(")) {
      BATON_TRY(caller.parameters, parameters());
    }
    BATON_TRY(Expression call, in_.expression());
    if (!std::holds_alternative<Call>(call.node)) return in_.error_at(line, "expected a call in the 'call' tag");
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    BATON_TRY_VOID(macro_rest(caller, "endcall", "call", line, false));
    return Statement{line, CallBlock{std::move(caller), std::move(call)}};
  }

  Result<Statement> filter_tag(int line) {
    FilterBlock node;
    BATON_TRY(node.filter, in_.filters(nullptr, true));
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    BATON_TRY(node.body, outside_loop([&] { return block("endfilter", "filter", line); }));
    return Statement{line, std::move(node)};
  }

  Result<Statement> with_tag(int line) {
    Block node;
    while (!in_.at(TokenKind::block_end)) {
      BATON_TRY(Target to, single_target(false));
      BATON_TRY_VOID(in_.expect_op("="));
      BATON_TRY(Expression value, in_.expression());
      node.assignments.emplace_back(std::move(to), std::move(value));
      if (!in_.skip_op(",")) break;
    }
    BATON_TRY_VOID(in_.expect(TokenKind::block_end));
    BATON_TRY(node.body, block("endwith", "with", line));
    return Statement{line, std::move(node)};
  }

  /// A name, ns.attribute, or several with commas.
  Result<Target> target(bool allows_attribute) {
    BATON_TRY_VOID(in_.enter());
    Target tuple{.name = {}, .attribute = {}, .parts = {}, .is_tuple = false, .line = in_.current().line};
    while (true) {
      BATON_TRY(Target part, single_target(allows_attribute));
      tuple.parts.push_back(std::move(part));
      if (!in_.skip_op(",")) break;
      tuple.is_tuple = true;
      if (in_.at_name("in") || (!in_.at(TokenKind::name) && !in_.at_op("("))) break;
    }
    in_.leave();
    if (!tuple.is_tuple) return Target(std::move(tuple.parts.front()));
    return tuple;
  }

  Result<Target> single_target(bool allows_attribute) {
    Target part{.name = {}, .attribute = {}, .parts = {}, .is_tuple = false, .line = in_.current().line};
    if (in_.skip_op("(")) {
      BATON_TRY(part, target(allows_attribute));
      BATON_TRY_VOID(in_.expect_op(")"));
      return part;
    }
    BATON_TRY(part.name, in_.expect_name());
    static constexpr std::string_view reserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(reserved), std::end(reserved), part.name) != std::end(reserved))
      return in_.error("cannot assign to '" + part.name + "'");
    if (allows_attribute && in_.skip_op(".")) {
      BATON_TRY(part.attribute, in_.expect_name());
    }
    return part;
  }

  Result<std::vector<Macro::Parameter>> parameters() {
    BATON_TRY_VOID(in_.expect_op("("));
    std::vector<Macro::Parameter> list;
    while (!in_.at_op(")")) {
      Macro::Parameter parameter;
      BATON_TRY(parameter.name, in_.expect_name());
      if (in_.skip_op("=")) {
        BATON_TRY(Expression fallback, in_.expression());
        parameter.fallback = box(std::move(fallback));
      } else if (!list.empty() && list.back().fallback != nullptr) {
        return in_.error("a parameter without a default follows one with a default");
      }
      list.push_back(std::move(parameter));
      if (!in_.skip_op(",")) break;
    }
    BATON_TRY_VOID(in_.expect_op(")"));
    return list;
  }

  /// Parses a body whose text is kept apart: 'break' cannot leave it.
  template <class Parse>
  Result<Body> outside_loop(Parse parse) {
    const int loops = std::exchange(loops_, 0);
    auto body = parse();
    loops_ = loops;
    return body;
  }

  ExpressionParser in_;
  int loops_ = 0;  ///< open loops that 'break' could leave
};

}  // namespace

Result<Body> parse(std::string_view source, LexOptions options) {
  BATON_TRY(std::vector<Token> tokens, tokenize(source, options));
  return StatementParser(std::move(tokens)).run();
}

}  // namespace baton::jinja
