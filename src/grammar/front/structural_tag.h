/// Free text, literal texts and schemas in sequence: the JSON that servers call `structural_tag`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"
#include "grammar/automaton/json_text.h"

namespace baton::grammar {

/// The rule of the texts that a structural tag describes. Appends the paths of schema keywords without effect to
/// `ignored`.
///
/// {"type": "structural_tag", "format": FORMAT}, where FORMAT is an object with one of these types:
///   const_string {value}, regex {pattern}, grammar {grammar}, json_schema {json_schema, style}: a literal text, what
///     the other kinds of grammars accept. `style`: json, qwen_xml, glm_xml, or Baton's own python (argument_texts.h)
///     {field, name}: Baton's own, the field of a request that holds the schema and the tool whose it is, for errors
///   qwen_xml_parameter {json_schema}: the same as json_schema with qwen_xml
///   any_text {excludes}: text without the excluded ones; as the last part of a tag it ends at the tag's end
///   sequence {elements}, or {elements}, optional {content}, star {content}, plus {content}, repeat {content, min, max}
///   tag {begin, content, end}: `end` is a text or a list of texts
///   triggered_tags {triggers, tags, excludes, at_least_one, stop_after_first}: free text; where one of the triggers
///     stands, one of the tags that begin with it follows
///   tags_with_separator {tags, separator, at_least_one, stop_after_first}
///   structural_tag {format}: another structural tag, also in the older form
/// Baton's own: {"type": "structural_tag", "format": FORMAT, "tokens": [TEXT, ...]}. Wherever a literal text (`value`,
/// `begin`, `end`, `triggers`, `separator`) of FORMAT holds one of these texts, the special token stands that the vocabulary
/// writes so. Free text holds neither the token nor, if it is a trigger or an end, the text.
/// The older form {"type": "structural_tag", "structures": [{begin, schema, end}], "triggers": [...]} is triggered_tags.
///
/// Errors name the path: invalid_request; unsupported for formats about token ids and dispatch; those of the parts.
Result<RuleId> parse_structural_tag(JsonText& json_text, std::string_view text, std::vector<std::string>& ignored,
                                    WorkMeter& meter);

}  // namespace baton::grammar
