/// JSON values: parsing, printing and typed access to fields, with errors as Results. The only place where the JSON
/// library's exceptions are caught.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/result.h"
#include "io/json_memory.h"

namespace baton::json {

/// Objects keep the order of their keys. Looking up a key is linear, so large objects are iterated, not searched.
using Value =
    nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t, double, Memory>;

/// Lists and objects nested deeper than this are refused, so that walking a value cannot overflow the stack.
inline constexpr int kMaxDepth = 256;

/// The value of `text`; of a key given twice the last value wins, in the first one's place. Errors (invalid_request)
/// name `what`, the line and the column. Time is linear in the text.
Result<Value> parse(std::string_view text, std::string_view what);
/// The same, but a key given twice is an error that names it by its place: 'keys[1].weight' is given twice.
Result<Value> parse_unambiguous(std::string_view text, std::string_view what);
/// The same, as Python's module writes it: NaN, Infinity and -Infinity are numbers, which no converted field takes.
Result<Value> parse_of_python(std::string_view text, std::string_view what);
/// The same of a file, as Python's module writes it; a missing file is not_found, a damaged one invalid_data.
Result<Value> parse_file(const std::filesystem::path& path);

/// Without spaces, in UTF-8; bytes that are not UTF-8 become U+FFFD, numbers that are not finite become null.
std::string dump(const Value& value);
/// The same in lines indented by two spaces.
std::string dump_pretty(const Value& value);

/// The field, or nullptr where `object` is not an object or has no such key. A field that is null is found.
const Value* find(const Value& object, std::string_view key);

/// Whether `value` is this string. The library's own comparison makes a value of the text first, and ends the program where
/// there is no memory for it.
inline bool is_text(const Value& value, std::string_view text) noexcept {
  const auto* const found = value.get_ptr<const Value::string_t*>();
  return found != nullptr && *found == text;
}

/// The type of the value for error messages: "a string", "an integer", "null"...
std::string_view describe_type(const Value& value);

/// The error of a value of the wrong type: "'key' must be a string, not an integer".
tl::unexpected<Error> wrong_type(std::string_view key, std::string_view expected, const Value& found);
tl::unexpected<Error> missing(std::string_view key);
/// `value` as an integer in [least, most]; a number written 16.0 counts as one.
Result<std::int64_t> to_int64(const Value& value, std::string_view key, std::int64_t least, std::int64_t most);
Result<std::uint64_t> to_uint64(const Value& value, std::string_view key);
/// `value` as a finite number of magnitude at most `most`.
Result<double> to_double(const Value& value, std::string_view key, double most);

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

/// `value` as a bool, an integer (range-checked), a float, a string, a Value or a vector of these. Errors
/// (invalid_request) call it `key` and name the type expected and the one found.
template <class T>
Result<T> convert(const Value& value, std::string_view key) {
  if constexpr (std::same_as<T, Value>) {
    return value;
  } else if constexpr (std::same_as<T, bool>) {
    if (!value.is_boolean()) return wrong_type(key, "true or false", value);
    return value.get_ref<const Value::boolean_t&>();
  } else if constexpr (std::same_as<T, std::string>) {
    if (!value.is_string()) return wrong_type(key, "a string", value);
    return value.get_ref<const std::string&>();
  } else if constexpr (std::floating_point<T>) {
    BATON_TRY(const double number, to_double(value, key, static_cast<double>(std::numeric_limits<T>::max())));
    return static_cast<T>(number);
  } else if constexpr (std::unsigned_integral<T> && sizeof(T) == 8) {
    BATON_TRY(const std::uint64_t number, to_uint64(value, key));
    return static_cast<T>(number);
  } else if constexpr (std::integral<T>) {
    BATON_TRY(const std::int64_t number, to_int64(value, key, static_cast<std::int64_t>(std::numeric_limits<T>::min()),
                                                  static_cast<std::int64_t>(std::numeric_limits<T>::max())));
    return static_cast<T>(number);
  } else {
    static_assert(IsVector<T>::value, "json::convert: a type that JSON values are not converted to");
    if (!value.is_array()) return wrong_type(key, "a list", value);
    T list;
    list.reserve(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      auto element = convert<typename T::value_type>(value[i], std::string(key) + "[" + std::to_string(i) + "]");
      if (!element) return tl::unexpected<Error>(std::move(element.error()));
      list.push_back(std::move(*element));
    }
    return list;
  }
}

/// The field `key` of `object` as a T (see convert); absent is an error, and null is of the wrong type.
template <class T>
Result<T> get(const Value& object, std::string_view key) {
  const Value* value = find(object, key);
  if (value == nullptr) return missing(key);
  return convert<T>(*value, key);
}

/// The same, where a field that is absent or null is nullopt.
template <class T>
Result<std::optional<T>> get_optional(const Value& object, std::string_view key) {
  const Value* value = find(object, key);
  if (value == nullptr || value->is_null()) return std::optional<T>{};
  BATON_TRY(T converted, convert<T>(*value, key));
  return std::optional<T>(std::move(converted));
}

}  // namespace baton::json
