/// What several schemas ask of one value together, as alternatives without references.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/schema/schema_document.h"

namespace baton::grammar {

/// Schemas that all hold for one value; sorted by address, each once. Empty: any value.
using SchemaSet = std::vector<const json::Value*>;

/// One alternative: objects of the schema that all hold, whose $ref, allOf, anyOf and oneOf are resolved already.
struct SchemaShape {
  std::vector<const json::Value*> parts;
};

/// Two schemas that no value may match both: alternatives of a oneOf, elements of which none may be equal.
struct SchemaOverlap {
  const json::Value* one;
  const json::Value* other;
  const json::Value* schema;  ///< that asks for it
  std::string_view keyword = "oneOf";
  std::string_view refusal = "has alternatives that overlap; use anyOf";

  SchemaSet schemas() const { return {one, other}; }
};

/// The pairs of each oneOf that was seen, in order.
struct SchemaOverlaps {
  std::deque<SchemaOverlap> pairs;
  std::unordered_set<const json::Value*> seen;  ///< the schemas that have them
};

/// The most alternatives that anyOf and oneOf of one value may have together.
inline constexpr std::size_t kMaxShapes = 512;
/// The most schemas that $ref and allOf may ask of one value together.
inline constexpr std::size_t kMaxParts = 4096;

/// The alternatives of `schemas`; none if no value can match. Appends to `overlaps` what a oneOf asks for, and to
/// `ignored` the paths of keywords that no draft defines. Errors: unsupported for keywords that are not supported and
/// references that lead back to themselves, with path and keyword; invalid_request for values of the wrong type;
/// too_large over kMaxShapes, kMaxParts, and for $ref and allOf inside of each other beyond the stack; the budget's.
Result<std::vector<SchemaShape>> shapes_of(const SchemaDocument& document, const SchemaSet& schemas, SchemaOverlaps& overlaps,
                                           std::vector<std::string>& ignored, WorkMeter& meter);

/// `schemas` without the ones that allow anything; a schema that only names another is replaced by it.
Result<SchemaSet> simplified(const SchemaDocument& document, SchemaSet schemas);

/// "the JSON schema: #/a/b/keyword TEXT".
tl::unexpected<Error> schema_error(ErrorCode code, const SchemaDocument& document, const json::Value& schema,
                                   std::string_view keyword, std::string_view text);

}  // namespace baton::grammar
