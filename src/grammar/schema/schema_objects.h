/// Objects of a JSON schema's alternative: names and values in order.
#pragma once

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/json_text.h"
#include "grammar/schema/schema_shape.h"
#include "grammar/schema/schema_values.h"

namespace baton::grammar {

/// The texts of the objects that the shape allows. `value_of` is the rule of what several schemas ask of a value.
Result<ExprId> object_of_shape(const SchemaDocument& document, const SchemaShape& shape, SchemaValues& values, JsonText& text,
                               WorkMeter& meter, const ValueRule& value_of);

}  // namespace baton::grammar
