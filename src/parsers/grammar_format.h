/// A grammar as a part of a larger one.
#pragma once

#include "core/result.h"
#include "grammar/grammar.h"
#include "io/json.h"

namespace baton::parsers {

/// The texts of a grammar, as a format of a structural tag. Its literal texts hold no special tokens of the tag around it.
/// Errors: invalid_request for a text that must be JSON and is none.
Result<json::Value> format_of(const grammar::GrammarSource& source);

}  // namespace baton::parsers
