/// Truth, equality, order and arithmetic.
#include "jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {

namespace {
constexpr int kMaxCompareDepth = 100;  // lists that contain themselves would never end
}

std::string_view type_name(Value value) {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::floating: return "float";
    case Kind::string: return "str";
    case Kind::dict: return "dict";
    case Kind::name_space: return "Namespace";
    case Kind::function: return value.as_function()->macro != nullptr ? "Macro" : "function";
    case Kind::loop: return "LoopContext";
    case Kind::list: break;
  }
  switch (value.as_list()->flavor) {
    case List::Flavor::list: return "list";
    case List::Flavor::tuple: return "tuple";
    case List::Flavor::range: return "range";
    case List::Flavor::keys: return "dict_keys";
    case List::Flavor::values: return "dict_values";
    case List::Flavor::items: return "dict_items";
    case List::Flavor::generator: return "generator";
  }
  return "object";
}

namespace {
std::string_view owner_name(Kind kind) {
  switch (kind) {
    case Kind::none: return "None";
    case Kind::boolean: return "bool object";
    case Kind::integer: return "int object";
    case Kind::floating: return "float object";
    case Kind::string: return "str object";
    case Kind::list: return "list object";
    case Kind::dict: return "dict object";
    case Kind::name_space: return "namespace object";
    case Kind::loop: return "loop object";
    default: return "function object";
  }
}

bool is_integer_text(std::string_view text) {
  return !text.empty() && text.find_first_not_of("-0123456789") == std::string_view::npos;
}
}  // namespace

std::string undefined_message(Value undefined) {
  constexpr std::size_t kShown = 200;
  const std::string_view whole = undefined.undefined_name();
  const std::string name = whole.size() <= kShown ? std::string(whole) : std::string(beginning(whole, kShown)) + "...";
  if (undefined.undefined_owner() == Kind::undefined) return "'" + name + "' is undefined";
  const std::string owner(owner_name(undefined.undefined_owner()));
  if (undefined.undefined_owner() != Kind::dict && is_integer_text(name)) return "'" + owner + "' has no element " + name;
  return "'" + owner + "' has no attribute '" + name + "'";
}

tl::unexpected<Error> type_error(std::string message) { return fail(ErrorCode::invalid_request, std::move(message)); }

bool truthy(Value value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return value.as_bool();
    case Kind::integer: return value.as_int() != 0;
    case Kind::floating: return value.as_double() != 0;
    case Kind::string: return !value.as_string().empty();
    case Kind::list: return value.as_list()->is_generator() || !value.as_list()->items.empty();
    case Kind::dict: return !value.as_dict()->entries.empty();
    default: return true;
  }
}

namespace {

template <class T>
int compare(T a, T b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

/// Exact, as in Python: the integer is not rounded. `b` is not nan.
int compare_with_double(std::int64_t a, double b) {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  if (b >= kBeyond) return -1;
  if (b < -kBeyond) return 1;
  const double whole = std::trunc(b);
  if (const int order = compare(a, static_cast<std::int64_t>(whole)); order != 0) return order;
  return compare(whole, b);
}

int compare_numbers(Value a, Value b) {
  if (a.is_whole() && b.is_whole()) return compare(a.as_int(), b.as_int());
  if (a.is_whole()) return compare_with_double(a.as_int(), b.as_double());
  if (b.is_whole()) return -compare_with_double(b.as_int(), a.as_double());
  return compare(a.as_double(), b.as_double());
}

int compare_pointers(const void* a, const void* b) {
  return std::less<const void*>()(a, b) ? -1 : std::less<const void*>()(b, a) ? 1 : 0;
}

int compare_items(const List& a, const List& b) {
  if (&a == &b) return 0;
  if (!a.is_tuple() || !b.is_tuple()) return compare_pointers(&a, &b);
  for (std::size_t i = 0; i < std::min(a.items.size(), b.items.size()); ++i)
    if (const int order = compare_keys(a.items[i], b.items[i]); order != 0) return order;
  return compare(a.items.size(), b.items.size());
}

}  // namespace

int compare_keys(Value a, Value b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.kind() != b.kind()) return compare(a.kind(), b.kind());
  switch (a.kind()) {
    case Kind::string: return a.as_string().compare(b.as_string());
    case Kind::list: return compare_items(*a.as_list(), *b.as_list());
    case Kind::dict:
    case Kind::name_space: return compare_pointers(a.as_dict(), b.as_dict());
    case Kind::loop: return compare_pointers(a.as_loop(), b.as_loop());
    case Kind::function: {
      const int order = compare_pointers(a.as_function()->macro, b.as_function()->macro);
      return order != 0 ? order : compare_pointers(a.as_function()->native, b.as_function()->native);
    }
    default: return 0;  // undefined and none
  }
}

bool same_key(Value a, Value b) {
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::string)) return a.as_string() == b.as_string();
  if (!a.is(Kind::list)) return compare_keys(a, b) == 0;
  const List& x = *a.as_list();
  const List& y = *b.as_list();
  return &x == &y || (x.is_tuple() && y.is_tuple() &&
                      std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(),
                                 [](Value v, Value w) { return !v.is(Kind::list) && !w.is(Kind::list) && same_key(v, w); }));
}

bool is_nan(Value value) { return value.is(Kind::floating) && std::isnan(value.as_double()); }

Result<void> check_hashable(Value value) {
  if (is_hashable(value)) return {};
  return type_error("unhashable type: '" + std::string(type_name(value)) + "'");
}

bool is_hashable(Value value) {
  if (value.is(Kind::dict)) return false;
  if (!value.is(Kind::list)) return true;
  const List& list = *value.as_list();
  return list.is_tuple() &&
         std::none_of(list.items.begin(), list.items.end(), [](Value v) { return v.is(Kind::list) || v.is(Kind::dict); });
}

namespace {

bool equal_at(Arena& arena, Value a, Value b, int depth) {
  if (depth > kMaxCompareDepth) arena.exhaust("depth");
  if (!arena.has_stack() || !arena.spend(1)) return false;
  if (a.is(Kind::list) && b.is(Kind::list)) {
    const List& x = *a.as_list();
    const List& y = *b.as_list();
    if (&x == &y) return true;
    if (x.is_generator() || y.is_generator() || x.items.size() != y.items.size()) return false;
    if (x.flavor != y.flavor && !(x.is_tuple() && y.is_tuple())) return false;
    for (std::size_t i = 0; i < x.items.size(); ++i)
      if (!equal_at(arena, x.items[i], y.items[i], depth + 1)) return false;
    return true;
  }
  if (a.is(Kind::dict) && b.is(Kind::dict)) {
    if (a.as_dict() == b.as_dict()) return true;
    if (a.as_dict()->entries.size() != b.as_dict()->entries.size()) return false;
    for (const auto& [key, value] : a.as_dict()->entries) {
      arena.spend_key(key);
      const Value* other = b.as_dict()->find(key);
      if (other == nullptr || !equal_at(arena, value, *other, depth + 1)) return false;
    }
    return true;
  }
  if (a.is(Kind::string) && b.is(Kind::string)) arena.spend_text(std::min(a.as_string().size(), b.as_string().size()));
  return same_key(a, b);
}

Result<bool> less_at(Arena& arena, Value a, Value b, int depth) {
  if (depth > kMaxCompareDepth) arena.exhaust("depth");
  if (!arena.has_stack() || !arena.spend(1)) return fail_exhausted(arena);
  if (a.is(Kind::undefined)) return type_error(undefined_message(a));
  if (b.is(Kind::undefined)) return type_error(undefined_message(b));
  if (a.is_whole() && b.is_whole()) return a.as_int() < b.as_int();
  if (a.is_number() && b.is_number()) return a.as_double() < b.as_double();
  if (a.is(Kind::string) && b.is(Kind::string)) {
    arena.spend_text(std::min(a.as_string().size(), b.as_string().size()));
    return a.as_string() < b.as_string();
  }
  if (a.is(Kind::list) && b.is(Kind::list)) {
    const List& x = *a.as_list();
    const List& y = *b.as_list();
    const bool lists = x.flavor == List::Flavor::list && y.flavor == List::Flavor::list;
    if (lists || (x.is_tuple() && y.is_tuple())) {
      for (std::size_t i = 0; i < std::min(x.items.size(), y.items.size()); ++i)
        if (!equal_at(arena, x.items[i], y.items[i], depth + 1)) return less_at(arena, x.items[i], y.items[i], depth + 1);
      return x.items.size() < y.items.size();
    }
  }
  return type_error("'<' not supported between instances of '" + std::string(type_name(a)) + "' and '" +
                    std::string(type_name(b)) + "'");
}

tl::unexpected<Error> unsupported(std::string_view op, Value a, Value b) {
  return type_error("unsupported operand type(s) for " + std::string(op) + ": '" + std::string(type_name(a)) + "' and '" +
                    std::string(type_name(b)) + "'");
}

Result<Value> add(Arena& arena, Value a, Value b) {
  if (a.is(Kind::string)) {
    if (b.is(Kind::string) && (a.is_markup() || b.is_markup()))
      return Value::markup(arena.concat(escape_html(arena, a), escape_html(arena, b)));
    if (b.is(Kind::string)) return arena.concat(a, b);
    return type_error("can only concatenate str (not \"" + std::string(type_name(b)) + "\") to str");
  }
  if (a.is(Kind::list) && b.is(Kind::list)) {
    const List& x = *a.as_list();
    const List& y = *b.as_list();
    const bool lists = x.flavor == List::Flavor::list && y.flavor == List::Flavor::list;
    if (lists || (x.is_tuple() && y.is_tuple())) {
      if (!arena.reserve(x.items.size() + y.items.size(), sizeof(Value))) return fail_exhausted(arena);
      std::vector<Value> joined = x.items;
      joined.insert(joined.end(), y.items.begin(), y.items.end());
      return arena.list(lists ? List::Flavor::list : List::Flavor::tuple, std::move(joined));
    }
  }
  if (a.is(Kind::list) && (a.as_list()->flavor == List::Flavor::list || a.as_list()->is_tuple())) {
    const std::string type(type_name(a));
    return type_error("can only concatenate " + type + " (not \"" + std::string(type_name(b)) + "\") to " + type);
  }
  return unsupported("+", a, b);
}

/// text * n and list * n.
Result<Value> repeat(Arena& arena, Value sequence, std::int64_t times) {
  const std::size_t n = times > 0 ? static_cast<std::size_t>(times) : 0;
  const bool is_text = sequence.is(Kind::string);
  const std::size_t size = is_text ? sequence.as_string().size() : sequence.as_list()->items.size();
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(size, n * (is_text ? 1 : sizeof(Value)), &bytes) || n > (std::size_t{1} << 40)) bytes = SIZE_MAX;
  if (size == 0) bytes = 0;
  if (!arena.reserve(bytes) || !arena.spend(bytes / 16)) return fail_exhausted(arena);
  if (is_text) {
    std::string text;
    text.reserve(bytes);
    for (std::size_t i = 0; i < n && size > 0; ++i) text += sequence.as_string();
    return Value::markup_like(sequence, arena.text(std::move(text)));
  }
  std::vector<Value> items;
  items.reserve(size * (size > 0 ? n : 0));
  for (std::size_t i = 0; i < n && size > 0; ++i)
    items.insert(items.end(), sequence.as_list()->items.begin(), sequence.as_list()->items.end());
  return arena.list(sequence.as_list()->flavor, std::move(items));
}

bool repeats(Value value) {
  return value.is(Kind::string) || (value.is(Kind::list) && (value.as_list()->flavor == List::Flavor::list ||
                                                             value.as_list()->flavor == List::Flavor::tuple));
}

Result<Value> whole_arithmetic(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add: overflow = __builtin_add_overflow(a, b, &result); break;
    case Operator::subtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Operator::multiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Operator::divide:
      if (b == 0) return type_error("division by zero");
      return Value::floating(static_cast<double>(a) / static_cast<double>(b));
    case Operator::floor_divide:
    case Operator::modulo: {
      if (b == 0) return type_error("integer division or modulo by zero");
      if (b == -1) {  // the one quotient that can overflow
        overflow = op == Operator::floor_divide && __builtin_sub_overflow(std::int64_t{0}, a, &result);
        break;
      }
      const std::int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == Operator::modulo ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
      break;
    }
    default: {  // power
      if (b < 0) {
        if (a == 0) return type_error("0.0 cannot be raised to a negative power");
        return Value::floating(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      result = 1;
      for (std::int64_t base = a; b > 0 && !overflow; b >>= 1) {
        if ((b & 1) != 0) overflow = __builtin_mul_overflow(result, base, &result);
        if (b > 1 && __builtin_mul_overflow(base, base, &base)) overflow = true;
      }
    }
  }
  if (overflow) return type_error("an integer result does not fit 64 bits");
  return Value::integer(result);
}

Result<Value> float_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::add: return Value::floating(a + b);
    case Operator::subtract: return Value::floating(a - b);
    case Operator::multiply: return Value::floating(a * b);
    case Operator::power: return Value::floating(std::pow(a, b));
    default: break;
  }
  if (b == 0) return type_error("float division by zero");
  if (op == Operator::divide) return Value::floating(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == Operator::modulo) return Value::floating(remainder);
  return Value::floating(std::round((a - remainder) / b));
}

Result<Value> arithmetic(Arena& arena, Operator op, Value a, Value b) {
  if (a.is(Kind::undefined)) return type_error(undefined_message(a));
  if (b.is(Kind::undefined)) return type_error(undefined_message(b));
  if (a.is_whole() && b.is_whole()) return whole_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_double(), b.as_double());
  switch (op) {
    case Operator::add: return add(arena, a, b);
    case Operator::multiply:
      if (repeats(a) && b.is_whole()) return repeat(arena, a, b.as_int());
      if (repeats(b) && a.is_whole()) return repeat(arena, b, a.as_int());
      return unsupported("*", a, b);
    case Operator::modulo: return unsupported("%", a, b);
    case Operator::subtract: return unsupported("-", a, b);
    case Operator::divide: return unsupported("/", a, b);
    case Operator::floor_divide: return unsupported("//", a, b);
    default: return unsupported("** or pow()", a, b);
  }
}

}  // namespace

bool equal(Arena& arena, Value a, Value b) { return equal_at(arena, a, b, 0); }
Result<bool> less(Arena& arena, Value a, Value b) { return less_at(arena, a, b, 0); }

Result<Value> negate(Value value) {
  if (value.is(Kind::undefined)) return type_error(undefined_message(value));
  if (value.is(Kind::floating)) return Value::floating(-value.as_double());
  if (value.is_whole()) return whole_arithmetic(Operator::subtract, 0, value.as_int());
  return type_error("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
}

Result<bool> contains(Arena& arena, Value container, Value member) {
  switch (container.kind()) {
    case Kind::undefined: return false;
    case Kind::string:
      if (!member.is(Kind::string))
        return type_error("'in <string>' requires string as left operand, not " + std::string(type_name(member)));
      if (!arena.spend_text(container.as_string().size() + member.as_string().size())) return fail_exhausted(arena);
      return find_first(container.as_string(), member.as_string(), 0) != std::string_view::npos;
    case Kind::dict:
      BATON_TRY_VOID(check_hashable(member));
      arena.spend_key(member);
      return container.as_dict()->find(member) != nullptr;
    case Kind::list: {
      BATON_TRY(const std::vector<Value> items, elements(arena, container));
      return std::any_of(items.begin(), items.end(), [&](Value item) { return equal(arena, item, member); });
    }
    default: return type_error("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

Result<Value> apply(Arena& arena, Operator op, Value a, Value b) {
  switch (op) {
    case Operator::equal: return Value::boolean(equal(arena, a, b));
    case Operator::not_equal: return Value::boolean(!equal(arena, a, b));
    case Operator::in:
    case Operator::not_in: {
      BATON_TRY(const bool found, contains(arena, b, a));
      return Value::boolean(found == (op == Operator::in));
    }
    case Operator::less:
    case Operator::greater: {
      BATON_TRY(const bool result, op == Operator::less ? less(arena, a, b) : less(arena, b, a));
      return Value::boolean(result);
    }
    case Operator::less_equal:
    case Operator::greater_equal: {
      BATON_TRY(const bool result, op == Operator::less_equal ? less(arena, a, b) : less(arena, b, a));
      return Value::boolean(result || equal(arena, a, b));
    }
    case Operator::concat: return arena.concat(to_text(arena, a), to_text(arena, b));
    default: return arithmetic(arena, op, a, b);
  }
}

}  // namespace baton::jinja
