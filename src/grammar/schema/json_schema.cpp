/// A schema's document, its root's rule, and what of it has no effect.
#include "grammar/schema/json_schema.h"

#include <algorithm>
#include <utility>

#include "grammar/schema/schema_compiler.h"

namespace baton::grammar {

Result<SchemaGrammar> schema_grammar(const SchemaDocument& document, JsonText& text, WorkMeter& meter) {
  SchemaGrammar grammar;
  SchemaCompiler compiler(document, text, grammar.ignored, meter);
  BATON_TRY(const ExprId root, compiler.rule_of({&document.root()}));
  BATON_TRY_VOID(compiler.finish());
  std::sort(grammar.ignored.begin(), grammar.ignored.end());
  grammar.ignored.erase(std::unique(grammar.ignored.begin(), grammar.ignored.end()), grammar.ignored.end());
  grammar.root = text.expressions().add_rule("#");
  text.expressions().define(grammar.root, root);
  return grammar;
}

Result<SchemaGrammar> parse_json_schema(JsonText& text, std::string_view schema, WorkMeter& meter) {
  BATON_TRY(const SchemaDocument document, SchemaDocument::parse(schema, meter));
  return schema_grammar(document, text, meter);
}

}  // namespace baton::grammar
