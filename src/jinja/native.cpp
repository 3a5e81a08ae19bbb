/// Binding of arguments to native functions, their lookup, and the global functions.
#include "jinja/native.h"

#include <algorithm>
#include <ctime>

#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

Result<Value> range(const NativeCall& call) {
  constexpr std::int64_t kMaxRange = 100'000;  // the limit of Jinja's sandbox
  if (!call.all.named.empty()) return type_error("range() takes no keyword arguments");
  const std::size_t n = call.all.positional.size();
  if (n < 1 || n > 3) return type_error("range expected 1 to 3 arguments, got " + std::to_string(n));
  for (const Value value : call.all.positional) {
    if (value.is(Kind::undefined)) return type_error(undefined_message(value));
    if (!value.is_whole())
      return type_error("'" + std::string(type_name(value)) + "' object cannot be interpreted as an integer");
  }
  const std::int64_t start = n > 1 ? call.all.positional[0].as_int() : 0;
  const std::int64_t stop = call.all.positional[n > 1 ? 1 : 0].as_int();
  const std::int64_t step = n > 2 ? call.all.positional[2].as_int() : 1;
  if (step == 0) return type_error("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<std::int64_t>(items.size()) == kMaxRange)
      return fail(ErrorCode::too_large, "a range is longer than " + std::to_string(kMaxRange));
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return call.arena.list(List::Flavor::range, std::move(items));
}

/// The dict that dict(...) and namespace(...) start with: another one's entries or pairs, then the keywords.
Result<Dict*> make_dict(const NativeCall& call) {
  Dict* dict = call.arena.dict();
  if (call.all.positional.size() > 1)
    return type_error("expected at most 1 argument, got " + std::to_string(call.all.positional.size()));
  if (!call.all.positional.empty()) {
    const Value source = call.all.positional[0];
    if (source.is(Kind::dict)) {
      for (const auto& [key, value] : source.as_dict()->entries) call.arena.set(*dict, key, value);
    } else {
      BATON_TRY(const std::vector<Value> pairs, elements(call.arena, source));
      for (const Value pair : pairs) {
        BATON_TRY(const std::vector<Value> parts, elements(call.arena, pair));
        if (parts.size() != 2 || !is_hashable(parts[0])) return type_error("dict() needs a mapping or a list of pairs");
        call.arena.set(*dict, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : call.all.named) call.arena.set(*dict, Value::string(name), value);
  return dict;
}

Result<Value> make_dict_value(const NativeCall& call) {
  BATON_TRY(Dict * dict, make_dict(call));
  return Value::dict(dict);
}

Result<Value> make_namespace(const NativeCall& call) {
  BATON_TRY(Dict * dict, make_dict(call));
  return Value::name_space(dict);
}

/// The message comes out as it is: it is what the template says to the caller.
Result<Value> raise_exception(const NativeCall& call) {
  constexpr std::size_t kShown = 10'000;
  return fail(ErrorCode::invalid_request, std::string(beginning(to_text(call.arena, *call[0]).as_string(), kShown)));
}

/// `self` is the time in seconds since 1970; local time, as Transformers.
Result<Value> strftime_now(const NativeCall& call) {
  if (!call[0]->is(Kind::string)) return type_error("strftime_now needs a format");
  constexpr std::size_t kSteps = 1000;  // the C library takes so long for a long format
  if (!call.arena.spend(kSteps)) return fail_exhausted(call.arena);
  const std::time_t seconds = static_cast<std::time_t>(call.self.as_int());
  std::tm local = {};
  localtime_r(&seconds, &local);
  const std::string format = std::string(call[0]->as_string()) + "x";  // so that an empty result is no error
  if (format.size() > 1000) return type_error("a strftime format is over 1000 characters");
  std::string text(16 * 1024, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  if (!text.empty()) text.pop_back();
  return call.arena.text(std::move(text));
}

constexpr Native kGlobals[] = {
    {"range", range, {}, 0, true},
    {"dict", make_dict_value, {}, 0, true},
    {"namespace", make_namespace, {}, 0, true},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"strftime_now", strftime_now, {"format"}, 1},
};

/// Gives `call` the arguments of a row with named parameters.
Result<void> bind(const Native& native, const Arguments& arguments, NativeCall& call) {
  if (native.variadic) return {};
  const auto known =
      static_cast<std::size_t>(std::find(native.parameters.begin(), native.parameters.end(), "") - native.parameters.begin());
  if (arguments.positional.size() > known)
    return type_error(std::string(native.name) + "() takes at most " + std::to_string(known) + " arguments (" +
                      std::to_string(arguments.positional.size()) + " given)");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) call.bound[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = static_cast<std::size_t>(
        std::find(native.parameters.begin(), native.parameters.begin() + static_cast<std::ptrdiff_t>(known), name) -
        native.parameters.begin());
    if (at == known)
      return type_error(std::string(native.name) + "() got an unexpected keyword argument '" + std::string(name) + "'");
    if (call.bound[at])
      return type_error(std::string(native.name) + "() got multiple values for argument '" + std::string(name) + "'");
    call.bound[at] = value;
  }
  for (std::size_t i = 0; i < native.required; ++i)
    if (!call.bound[i])
      return type_error(std::string(native.name) + "() needs the argument '" + std::string(native.parameters[i]) + "'");
  return {};
}

}  // namespace

const Native* find_row(std::span<const Native> table, std::string_view name) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const Native& native) { return native.name == name; });
  return row == table.end() ? nullptr : &*row;
}

const Native* find_filter(std::string_view name) {
  const Native* row = find_row(text_filters(), name);
  return row != nullptr ? row : find_row(sequence_filters(), name);
}

const Native* find_global(std::string_view name) { return find_row(kGlobals, name); }

Scope* global_scope(Arena& arena, std::int64_t now) {
  Scope* scope = arena.scope(nullptr);
  for (const Native& native : kGlobals)
    arena.set(*scope, native.name,
              arena.function(Function{.name = native.name, .native = &native, .self = Value::integer(now)}));
  return scope;
}

Result<Value> run_native(Arena& arena, const Native& native, Value self, const Arguments& arguments) {
  if (!arena.spend(1)) return fail_exhausted(arena);
  NativeCall call{.arena = arena, .self = self, .bound = {}, .all = arguments};
  BATON_TRY_VOID(bind(native, arguments, call));
  BATON_TRY(const Value result, native.run(call));
  const bool is_method = &native >= string_methods().data() && &native < string_methods().data() + string_methods().size();
  return native.keeps_markup || (is_method && self.is_markup()) ? Value::markup_like(self, result) : result;
}

Result<std::int64_t> integer_argument(const NativeCall& call, std::size_t parameter, std::int64_t fallback) {
  const std::optional<Value>& value = call[parameter];
  if (!value || value->is(Kind::none)) return fallback;
  if (!value->is_whole())
    return type_error("'" + std::string(type_name(*value)) + "' object cannot be interpreted as an integer");
  return value->as_int();
}

}  // namespace baton::jinja
