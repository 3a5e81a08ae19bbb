/// Tests: what can stand after `is`.
#include <cmath>

#include "jinja/native.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

Result<Value> answer(bool value) { return Value::boolean(value); }

bool is_sequence(Value value) {
  return value.is(Kind::undefined) || value.is(Kind::string) || value.is(Kind::dict) ||
         (value.is(Kind::list) && value.as_list()->is_indexable());
}
bool is_iterable(Value value) {
  return value.is(Kind::undefined) || value.is(Kind::string) || value.is(Kind::dict) || value.is(Kind::list) ||
         value.is(Kind::loop);
}

/// value % divisor == remainder.
Result<Value> leaves(const NativeCall& call, Value divisor, std::int64_t remainder) {
  BATON_TRY(const Value rest, apply(call.arena, Operator::modulo, call.self, divisor));
  return answer(equal(call.arena, rest, Value::integer(remainder)));
}

/// At least one letter of the value's text has a case, and every one that has is `wanted`.
bool all_cased(const NativeCall& call, bool (*wanted)(char32_t), bool (*unwanted)(char32_t)) {
  const std::string_view text = to_text(call.arena, call.self).as_string();
  if (!call.arena.spend_characters(text.size())) return false;
  bool any = false;
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) {
    if (unwanted(char_at(text, i))) return false;
    any = any || wanted(char_at(text, i));
  }
  return any;
}

template <Operator op>
Result<Value> compare(const NativeCall& call) {
  return apply(call.arena, op, call.self, *call[0]);
}

constexpr Native kTests[] = {
    {"defined", [](const NativeCall& call) { return answer(!call.self.is(Kind::undefined)); }},
    {"undefined", [](const NativeCall& call) { return answer(call.self.is(Kind::undefined)); }},
    {"none", [](const NativeCall& call) { return answer(call.self.is(Kind::none)); }},
    {"boolean", [](const NativeCall& call) { return answer(call.self.is(Kind::boolean)); }},
    {"true", [](const NativeCall& call) { return answer(call.self.is(Kind::boolean) && call.self.as_bool()); }},
    {"false", [](const NativeCall& call) { return answer(call.self.is(Kind::boolean) && !call.self.as_bool()); }},
    {"string", [](const NativeCall& call) { return answer(call.self.is(Kind::string)); }},
    {"number", [](const NativeCall& call) { return answer(call.self.is_number()); }},
    {"integer", [](const NativeCall& call) { return answer(call.self.is(Kind::integer)); }},
    {"float", [](const NativeCall& call) { return answer(call.self.is(Kind::floating)); }},
    {"mapping", [](const NativeCall& call) { return answer(call.self.is(Kind::dict)); }},
    {"iterable", [](const NativeCall& call) { return answer(is_iterable(call.self)); }},
    {"sequence", [](const NativeCall& call) { return answer(is_sequence(call.self)); }},
    {"callable",
     [](const NativeCall& call) {
       return answer(call.self.is(Kind::function) || call.self.is(Kind::loop) || call.self.is(Kind::undefined));
     }},
    {"odd", [](const NativeCall& call) { return leaves(call, Value::integer(2), 1); }},
    {"even", [](const NativeCall& call) { return leaves(call, Value::integer(2), 0); }},
    {"divisibleby", [](const NativeCall& call) { return leaves(call, *call[0], 0); }, {"num"}, 1},
    {"upper", [](const NativeCall& call) { return answer(all_cased(call, is_upper, is_lower)); }},
    {"lower", [](const NativeCall& call) { return answer(all_cased(call, is_lower, is_upper)); }},
    {"in", [](const NativeCall& call) { return apply(call.arena, Operator::in, call.self, *call[0]); }, {"seq"}, 1},
    {"eq", compare<Operator::equal>, {"b"}, 1},
    {"equalto", compare<Operator::equal>, {"b"}, 1},
    {"==", compare<Operator::equal>, {"b"}, 1},
    {"ne", compare<Operator::not_equal>, {"b"}, 1},
    {"!=", compare<Operator::not_equal>, {"b"}, 1},
    {"lt", compare<Operator::less>, {"b"}, 1},
    {"lessthan", compare<Operator::less>, {"b"}, 1},
    {"<", compare<Operator::less>, {"b"}, 1},
    {"le", compare<Operator::less_equal>, {"b"}, 1},
    {"<=", compare<Operator::less_equal>, {"b"}, 1},
    {"gt", compare<Operator::greater>, {"b"}, 1},
    {"greaterthan", compare<Operator::greater>, {"b"}, 1},
    {">", compare<Operator::greater>, {"b"}, 1},
    {"ge", compare<Operator::greater_equal>, {"b"}, 1},
    {">=", compare<Operator::greater_equal>, {"b"}, 1},
};

}  // namespace

const Native* find_test(std::string_view name) { return find_row(kTests, name); }

}  // namespace baton::jinja
