/// The parts of a JSON schema's alternative that say what strings and numbers may be.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"
#include "grammar/automaton/number_language.h"
#include "grammar/schema/schema_shape.h"

namespace baton::grammar {

/// The kinds of values, as bits. A number that is not an integer is a kind of its own.
enum : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllKinds = 127
};

/// The non-negative integer at `keyword`, at most `most`; nullopt where the schema has none. Errors: invalid_request.
Result<std::optional<int>> count_keyword(const SchemaDocument& document, const json::Value& schema, std::string_view keyword);

/// What a string's text must be. `content` is empty where only the length is limited.
struct StringLanguage {
  LengthBounds length = {};
  std::optional<Dfa> content = {};
  bool is_any() const { return length.is_any() && !content; }
  void limit(const LengthBounds& other);
  bool allows(std::string_view text) const;
};

/// minLength and maxLength. A maximum over LengthBounds::kMost is none. Errors: invalid_request.
Result<LengthBounds> length_keywords(const SchemaDocument& document, const json::Value& schema);

/// The values of enum and const, parts of the document, each once.
using ListedValues = std::vector<const json::Value*>;

/// The rule of what several schemas ask of a value.
using ValueRule = std::function<Result<ExprId>(SchemaSet)>;

/// Reads the keywords of types, strings and numbers. Thread: one at a time.
class SchemaValues {
 public:
  /// All must outlive it.
  SchemaValues(const SchemaDocument& document, Expressions& expressions, SchemaOverlaps& overlaps,
               std::vector<std::string>& ignored, WorkMeter& meter)
      : document_(document), expressions_(expressions), overlaps_(overlaps), ignored_(ignored), meter_(meter) {}

  /// The alternatives of schemas of which no rule is made.
  Result<std::vector<SchemaShape>> shapes(const SchemaSet& schemas);
  /// The kinds that all parts allow by `type`.
  Result<unsigned> kinds(const SchemaShape& shape);
  Result<StringLanguage> strings(const SchemaShape& shape);
  /// What the keywords for strings say, as text: equal for shapes with equal strings.
  Result<std::string> string_key(const SchemaShape& shape);
  Result<NumberLanguage> numbers(const SchemaShape& shape);
  /// The values of `enum` and `const` that all parts have; nullopt where none has any.
  Result<std::optional<ListedValues>> values(const SchemaShape& shape);
  /// Those of `values` that are of these kinds and that the keywords about strings and numbers allow.
  Result<ListedValues> allowed_of(const SchemaShape& shape, unsigned kinds, const ListedValues& values);
  /// All values that match all of `schemas`, if they are listed, booleans or null; nullopt for others.
  Result<std::optional<ListedValues>> finite_values(const SchemaSet& schemas);
  /// The texts in which `pattern`, the value of a keyword or a name, matches somewhere.
  Result<const Dfa*> pattern(const json::Value& schema, std::string_view keyword, const std::string& pattern);
  /// The texts of a grammar in GBNF or Lark whose rules do not refer to themselves.
  Result<const Dfa*> regular_grammar(const json::Value& schema, const std::string& text);
  /// All texts of characters.
  Result<const Dfa*> any_text();

 private:
  Result<const Dfa*> regex(const json::Value& schema, std::string_view keyword, const std::string& regex, bool is_whole);

  const SchemaDocument& document_;
  Expressions& expressions_;
  SchemaOverlaps& overlaps_;
  std::vector<std::string>& ignored_;
  WorkMeter& meter_;
  std::map<std::pair<std::string, bool>, Dfa> automata_;  // by expression, and whether it is of the whole text
  std::map<std::string, Dfa, std::less<>> grammars_;      // by text
};

/// The kind of a value; a number without fraction is an integer.
unsigned kind_of(const json::Value& value);

}  // namespace baton::grammar
