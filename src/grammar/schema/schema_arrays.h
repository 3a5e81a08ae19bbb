/// Arrays of a JSON schema's alternative: elements in order.
#pragma once

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/json_text.h"
#include "grammar/schema/schema_shape.h"
#include "grammar/schema/schema_values.h"

namespace baton::grammar {

/// The texts of the arrays that the shape allows. With uniqueItems: of listed elements each at most once, in any order while
/// the places that this takes are at most kMostUniquePlaces, else in the order in which they are listed; of a tuple, if no
/// value can be at two of its places (appended to `overlaps`). Errors: also unsupported for other uniqueItems.
Result<ExprId> array_of_shape(const SchemaDocument& document, const SchemaShape& shape, SchemaValues& values, JsonText& text,
                              SchemaOverlaps& overlaps, WorkMeter& meter, const ValueRule& value_of);

/// A place is a set of elements that were there, and one that may follow: twelve elements have 24,576.
inline constexpr double kMostUniquePlaces = 32'768;

}  // namespace baton::grammar
