/// What Python's operators do to values: truth, equality, order, arithmetic, membership, attributes, items, slices,
/// iteration. Errors (invalid_request) say what Python would, without a place; the interpreter adds it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "jinja/ast.h"
#include "jinja/value.h"

namespace baton::jinja {

/// "str", "NoneType"...: the Python type, as messages name it.
std::string_view type_name(Value value);
/// "'name' is undefined", "'dict object' has no attribute 'name'".
std::string undefined_message(Value undefined);
tl::unexpected<Error> type_error(std::string message);

bool truthy(Value value);
/// Python's ==. False when the arena is exhausted on the way.
bool equal(Arena& arena, Value a, Value b);
/// == of dict keys: strings, numbers, none and tuples; everything else by identity.
bool same_key(Value a, Value b);
/// An order of all dict keys but nan: negative, 0 (where same_key is true) or positive.
int compare_keys(Value a, Value b);
bool is_hashable(Value value);
/// A type error if it is not.
Result<void> check_hashable(Value value);
/// A number that is equal to nothing, not even to itself, and so cannot be ordered.
bool is_nan(Value value);
/// Python's <.
Result<bool> less(Arena& arena, Value a, Value b);
Result<bool> contains(Arena& arena, Value container, Value member);
/// `a op b` for comparisons, arithmetic and ~ (not and/or, which do not always evaluate b).
Result<Value> apply(Arena& arena, Operator op, Value a, Value b);
Result<Value> negate(Value value);

/// object.name: methods before keys, as Python does; undefined when there is neither.
Result<Value> attribute(Arena& arena, Value object, std::string_view name);
/// object[key]: keys before methods.
Result<Value> item(Arena& arena, Value object, Value key);
Result<Value> slice(Arena& arena, Value object, std::optional<Value> start, std::optional<Value> stop,
                    std::optional<Value> step);

/// The elements in order: a dict's keys, a string's characters. Empties a generator. Counts their number.
Result<std::vector<Value>> elements(Arena& arena, Value value);
/// len(value), or nothing where Python has none.
std::optional<std::int64_t> length_of(Value value);

}  // namespace baton::jinja
