/// Python's two ways to fill a text: "%s" % x and "{}".format(x).
#pragma once

#include <string_view>
#include <vector>

#include "core/result.h"
#include "jinja/native.h"
#include "jinja/value.h"

namespace baton::jinja {

/// Conversions s, r, d, i, x, X, f, e, g with flags, width and precision; %(name)s where the only operand is a dict.
Result<Value> format_percent(Arena& arena, std::string_view format, const std::vector<Value>& operands);

/// Fields {}, {0}, {name}, {name.attribute}, {0[key]} with !r or !s and
/// [[fill]align][sign][0][width][,][.precision][type].
Result<Value> format_braces(Arena& arena, std::string_view format, const Arguments& arguments);

}  // namespace baton::jinja
