/// Fields that hold grammars, as vLLM spells them: `structured_outputs` as a whole, and its keys one by one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "grammar/grammar.h"
#include "io/json.h"

namespace baton::grammar {

/// A grammar, and the field that it came from.
struct FieldGrammar {
  GrammarSource source;
  std::string field;  ///< "structured_outputs.json"
};
/// A grammar of a field. Made member by member: of nested lists of initialisers GCC 12 destroys the source twice where there
/// is no memory for the field.
FieldGrammar field_grammar(GrammarKind kind, std::string text, JsonSpaces spaces, std::string field);

/// Reads the value of a field. Nothing: the value asks for no grammar. `spaces`: of JSON. Errors (invalid_request) name
/// the field.
using ReadGrammar = Result<std::optional<FieldGrammar>>(const json::Value& value, const std::string& field, JsonSpaces spaces);
/// A schema: an object, true or false, or the text of one. Equal schemas have equal texts, whatever spaces they were
/// written with.
ReadGrammar read_schema;
ReadGrammar read_regex;
/// A text in GBNF or Lark; an empty one is none, as clients of llama.cpp mean it.
ReadGrammar read_ebnf;
ReadGrammar read_choice;          ///< a list of strings
ReadGrammar read_json_object;     ///< true or false
ReadGrammar read_structural_tag;  ///< an object, or its text

struct GrammarKey {
  std::string_view name;
  ReadGrammar* read;
};
/// Reads the keys of a table that `object` has; their fields begin with `path`. Errors: also more than one grammar.
Result<std::optional<FieldGrammar>> read_grammar_keys(const json::Value& object, std::string_view path,
                                                      std::span<const GrammarKey> keys, JsonSpaces spaces);

/// vLLM's `structured_outputs`: an object with one grammar and how JSON is written. Nothing: all its values are null.
/// Errors (invalid_request) name the field: a wrong type, a key that is not known, a value that is not supported, no
/// grammar or more than one.
Result<std::optional<FieldGrammar>> read_structured_outputs(const json::Value& object, JsonSpaces spaces);

/// A pattern of the spaces between tokens of JSON: only the empty one says what a grammar here can do. `pattern` null: not given.
Result<void> read_whitespace_pattern(const json::Value* pattern, const std::string& field, JsonSpaces& spaces);
/// There is one backend. `backend` null: not given.
Result<void> check_grammar_backend(const json::Value* backend, const std::string& field);
/// Refuses a key of `object` that is not read. Errors: invalid_request (names it).
Result<void> refuse_other_keys(const json::Value& object, const std::string& field, std::span<const std::string_view> read);
/// The error for two fields of which one may be given.
tl::unexpected<Error> two_grammars(const std::string& one, const std::string& other);

}  // namespace baton::grammar
