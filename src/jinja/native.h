/// Filters, tests, methods and global functions written in C++: one row each, found by name.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "jinja/value.h"

namespace baton::jinja {

/// Arguments as written, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

inline constexpr std::size_t kMaxParameters = 6;

/// What a native function receives: `self` is the filtered or tested value, or the method's object.
struct NativeCall {
  Arena& arena;
  Value self;
  std::array<std::optional<Value>, kMaxParameters> bound;  ///< by parameter; empty where not given
  const Arguments& all;

  const std::optional<Value>& operator[](std::size_t parameter) const { return bound[parameter]; }
};

struct Native {
  std::string_view name;
  Result<Value> (*run)(const NativeCall& call);
  std::array<std::string_view, kMaxParameters> parameters = {};  ///< names, in order
  std::size_t required = 0;
  bool variadic = false;      ///< takes anything: reads NativeCall::all, nothing is bound
  bool keeps_markup = false;  ///< a text made from markup is markup; so it is for all methods of strings
};

/// Rows by name; null where there is none. `find_method` looks for a method of values of this type.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_method(Value object, std::string_view name);
const Native* find_global(std::string_view name);
/// A scope that holds the global functions; strftime_now shows `now`, in seconds since 1970.
Scope* global_scope(Arena& arena, std::int64_t now);
/// The row in `table` called `name`, or null.
const Native* find_row(std::span<const Native> table, std::string_view name);

/// The tables of the files that hold them.
std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> string_methods();

/// Binds `arguments` to the row's parameters and runs it; errors say which argument is wrong.
Result<Value> run_native(Arena& arena, const Native& native, Value self, const Arguments& arguments);

/// The argument of a parameter as an integer; absent or none gives the fallback. Errors name the type found.
Result<std::int64_t> integer_argument(const NativeCall& call, std::size_t parameter, std::int64_t fallback);

}  // namespace baton::jinja
