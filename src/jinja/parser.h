/// Parses a template into its syntax tree.
#pragma once

#include <string_view>

#include "core/result.h"
#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace baton::jinja {

/// Errors name the line and the construct: invalid_data where Jinja would refuse too, unsupported for tags, filters
/// and tests of Jinja that are not done here (and unknown names). `source` is UTF-8.
Result<Body> parse(std::string_view source, LexOptions options);

}  // namespace baton::jinja
