/// Formats as expressions; free text as automata that stop at markers.
#include "grammar/front/structural_tag.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/limits/stack_space.h"
#include "core/one_line.h"
#include "grammar/automaton/free_text.h"
#include "grammar/automaton/regex.h"
#include "grammar/automaton/source_cursor.h"
#include "grammar/ebnf/ebnf.h"
#include "grammar/front/argument_texts.h"
#include "grammar/front/tag_fields.h"
#include "grammar/schema/schema_compiler.h"
#include "grammar/schema/schema_document.h"
#include "io/json.h"
#include "io/json_parse.h"

namespace baton::grammar {

namespace {

class StructuralTagCompiler {
 public:
  StructuralTagCompiler(JsonText& text, std::vector<std::string>& ignored, WorkMeter& meter)
      : text_(text),
        expressions_(text.expressions()),
        ignored_(ignored),
        meter_(meter),
        qwen_arguments_(kQwenTags, text, ignored, meter),
        glm_arguments_(kGlmTags, text, ignored, meter) {}

  Result<ExprId> compile(const json::Value& tag);

 private:
  using Compile = Result<ExprId> (StructuralTagCompiler::*)(const json::Value&, const std::string&, const Ends&);
  struct Kind {
    std::string_view name;
    Compile compile;
    std::vector<std::string_view> fields;
    bool writes_ends;  // whether it writes the ends of the tag around it itself
  };
  static const std::vector<Kind>& kinds();

  /// A format, and one of `ends` after it.
  Result<ExprId> format(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> const_string(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> regex(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> grammar(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> json_schema(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> xml(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> any_text(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> sequence(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> any_of(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> repetition(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> tag(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> triggered_tags(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> separated_tags(const json::Value& value, const std::string& path, const Ends& ends);
  Result<ExprId> structural_tag(const json::Value& value, const std::string& path, const Ends& ends);

  Result<ExprId> schema_texts(const json::Value& schema, std::string_view style, const std::string& path);
  /// A tag without the first `n_begun` bytes of its begin, which are written already.
  Result<ExprId> tag_behind(const json::Value& value, const std::string& path, std::size_t n_begun);
  /// For each trigger, the tags that begin with it, without it.
  Result<std::vector<std::vector<ExprId>>> tags_of_triggers(const json::Value& tags, const std::string& path,
                                                            const Ends& triggers);
  Result<ExprId> one_triggered_tag(const json::Value& tags, const std::string& path, const TextStops& texts,
                                   const Ends& triggers);
  Result<ExprId> text_to_ends(const TextStops& texts, const Ends& ends, const std::string& path);
  ExprId one_of(const Ends& ends);
  /// A text in which the special tokens stand for themselves.
  ExprId literal(std::string_view text);
  /// Which of tokens_ begins at the front of `text`, the longest; "": none.
  std::string_view token_at(std::string_view text) const;
  bool begins_with_token(std::string_view text) const { return !token_at(text).empty(); }

  JsonText& text_;
  Expressions& expressions_;
  std::vector<std::string>& ignored_;
  WorkMeter& meter_;
  ArgumentTexts qwen_arguments_;
  ArgumentTexts glm_arguments_;
  StackSpace stack_;
  Ends tokens_;           ///< the texts of special tokens, of the structural tag being read
  ByteSet token_begins_;  ///< the bytes that they begin with
};

/// An error of a schema that says whose it is: the begin of a call's tag has the name of its tool.
tl::unexpected<Error> of_tag(Error error, std::string_view begin) {
  if (error.message.starts_with("the JSON schema") && !error.message.ends_with("')"))
    error.message += fmt::format(" (in the tag that begins with '{}')", one_line(begin, kMaxQuotedBytes));
  return tl::unexpected<Error>(std::move(error));
}

/// An error of a schema in the name of the request's field that holds it, where the tag says so.
tl::unexpected<Error> of_field(Error error, std::string_view field, std::string_view name) {
  if (!field.empty() && error.message.starts_with("the JSON schema")) {
    error.param = one_line(field, kMaxQuotedBytes);
    error.message = fmt::format("'{}' of \"{}\": {}", error.param, one_line(name, kMaxQuotedBytes), error.message);
  }
  return tl::unexpected<Error>(std::move(error));
}

const std::vector<StructuralTagCompiler::Kind>& StructuralTagCompiler::kinds() {
  using Self = StructuralTagCompiler;
  static const std::vector<Kind> kKinds{
      {"const_string", &Self::const_string, {"value"}, false},
      {"regex", &Self::regex, {"pattern"}, false},
      {"grammar", &Self::grammar, {"grammar"}, false},
      {"json_schema", &Self::json_schema, {"json_schema", "style", "name", "field"}, false},
      {"qwen_xml_parameter", &Self::xml, {"json_schema"}, false},
      {"any_text", &Self::any_text, {"excludes"}, true},
      {"sequence", &Self::sequence, {"elements"}, true},
      {"or", &Self::any_of, {"elements"}, true},
      {"optional", &Self::repetition, {"content"}, false},
      {"star", &Self::repetition, {"content"}, false},
      {"plus", &Self::repetition, {"content"}, false},
      {"repeat", &Self::repetition, {"content", "min", "max"}, false},
      {"tag", &Self::tag, {"begin", "content", "end"}, false},
      {"triggered_tags", &Self::triggered_tags, {"triggers", "tags", "excludes", "at_least_one", "stop_after_first"}, true},
      {"tags_with_separator", &Self::separated_tags, {"tags", "separator", "at_least_one", "stop_after_first"}, false},
      {"structural_tag", &Self::structural_tag, {"format", "structures", "triggers", "tokens"}, true},
  };
  return kKinds;
}

ExprId StructuralTagCompiler::one_of(const Ends& ends) {
  std::vector<ExprId> all;
  for (const std::string_view end : ends) all.push_back(literal(end));
  return all.empty() ? expressions_.empty() : expressions_.choice(all);
}

std::string_view StructuralTagCompiler::token_at(std::string_view text) const {
  std::string_view longest;
  if (text.empty() || !token_begins_[static_cast<unsigned char>(text[0])]) return longest;
  meter_.spend(1 + static_cast<std::int64_t>(tokens_.size() / 4));
  for (const std::string_view token : tokens_)
    if (text.starts_with(token) && token.size() > longest.size()) longest = token;
  return longest;
}

ExprId StructuralTagCompiler::literal(std::string_view text) {
  std::vector<ExprId> parts;
  std::size_t begin = 0;  // of the bytes that no token has taken
  for (std::size_t at = 0; at < text.size() && meter_.is_within();) {
    const std::string_view token = token_at(text.substr(at));
    if (token.empty()) {
      ++at;
      continue;
    }
    if (at > begin) parts.push_back(expressions_.bytes(text.substr(begin, at - begin)));
    parts.push_back(expressions_.token(token));
    begin = at += token.size();
  }
  if (begin < text.size() || parts.empty()) parts.push_back(expressions_.bytes(text.substr(begin)));
  return expressions_.sequence(parts);
}

Result<ExprId> StructuralTagCompiler::format(const json::Value& value, const std::string& path, const Ends& ends) {
  if (!value.is_object()) return tag_error(ErrorCode::invalid_request, path, "must be an object");
  if (!stack_.has_room(8192)) return tag_error(ErrorCode::too_large, path, "is nested too deep");
  BATON_TRY(const std::string_view type, text_of(value, "type", path));
  const auto kind = std::find_if(kinds().begin(), kinds().end(), [&](const Kind& one) { return one.name == type; });
  if (kind == kinds().end())
    return tag_error(ErrorCode::unsupported, path + "/type",
                     fmt::format("'{}' is not supported", one_line(type, kMaxQuotedBytes)));
  for (const auto& [key, unused] : value.items())
    if (key != "type" && std::find(kind->fields.begin(), kind->fields.end(), key) == kind->fields.end())
      return tag_error(ErrorCode::unsupported, path + "/" + key, fmt::format("is not supported in '{}'", type));
  if (!meter_.spend(16)) return over_budget(meter_);
  BATON_TRY(const ExprId texts, (this->*kind->compile)(value, path, ends));
  return kind->writes_ends || ends.empty() ? texts : expressions_.sequence({texts, one_of(ends)});
}

Result<ExprId> StructuralTagCompiler::const_string(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  BATON_TRY(const std::string_view text, text_of(value, "value", path));
  return literal(text);
}

Result<ExprId> StructuralTagCompiler::regex(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  BATON_TRY(const std::string_view pattern, text_of(value, "pattern", path));
  return parse_regex(expressions_, pattern, RegexUse::whole, meter_);
}

Result<ExprId> StructuralTagCompiler::grammar(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  BATON_TRY(const std::string_view text, text_of(value, "grammar", path));
  BATON_TRY(const RuleId root, parse_ebnf(expressions_, text, meter_));
  return expressions_.rule(root);
}

Result<ExprId> StructuralTagCompiler::schema_texts(const json::Value& schema, std::string_view style, const std::string& path) {
  if (style == "qwen_xml") return qwen_arguments_.xml(schema);
  if (style == "glm_xml") return glm_arguments_.xml(schema);
  if (style == "python") return qwen_arguments_.python(schema);
  if (style != "json") return tag_error(ErrorCode::unsupported, path + "/style", fmt::format("'{}' is not supported", style));
  BATON_TRY(const SchemaDocument document, SchemaDocument::of(schema, meter_));
  BATON_TRY(SchemaGrammar parsed, schema_grammar(document, text_, meter_));
  ignored_.insert(ignored_.end(), parsed.ignored.begin(), parsed.ignored.end());
  return expressions_.rule(parsed.root);
}

Result<ExprId> StructuralTagCompiler::json_schema(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  BATON_TRY(const json::Value* schema, field(value, "json_schema", path));
  std::string_view style = "json";
  if (json::find(value, "style") != nullptr) {
    BATON_TRY(style, text_of(value, "style", path));
  }
  std::string_view said[2];
  for (const std::size_t i : {0u, 1u}) {
    const std::string_view key = i == 0 ? "field" : "name";
    if (json::find(value, key) == nullptr) continue;
    BATON_TRY(said[i], text_of(value, key, path));
  }
  auto texts = schema_texts(*schema, style, path);
  if (!texts) return of_field(std::move(texts.error()), said[0], said[1]);
  return texts;
}

Result<ExprId> StructuralTagCompiler::xml(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  BATON_TRY(const json::Value* schema, field(value, "json_schema", path));
  return schema_texts(*schema, "qwen_xml", path);
}

/// Free text up to one of `ends`, or without end.
Result<ExprId> StructuralTagCompiler::text_to_ends(const TextStops& texts, const Ends& ends, const std::string& path) {
  TextStops all = texts;
  if (ends.empty()) {
    BATON_TRY(const Dfa dfa, text_without(all, meter_));
    return expressions_.automaton(dfa);
  }
  all.never.insert(all.never.end(), all.stops.begin(), all.stops.end());
  all.stops.clear();
  Ends token_ends;
  for (const std::string_view end : ends) {
    const bool has_token = begins_with_token(end);
    for (std::size_t at = 1; !has_token && at < end.size() && meter_.spend(1); ++at)
      if (begins_with_token(end.substr(at)))
        return tag_error(ErrorCode::unsupported, path,
                         fmt::format("ends with '{}', which has a token after other text", one_line(end, kMaxQuotedBytes)));
    (has_token ? token_ends : all.stops).push_back(end);
  }
  std::vector<ExprId> alternatives;
  if (!all.stops.empty()) {
    TextStops up_to = all;
    up_to.never.insert(up_to.never.end(), token_ends.begin(), token_ends.end());
    BATON_TRY(const Dfa dfa, text_up_to(up_to, std::nullopt, meter_));
    alternatives.push_back(expressions_.automaton(dfa));
  }
  if (!token_ends.empty()) {
    all.never.insert(all.never.end(), ends.begin(), ends.end());
    all.stops.clear();
    BATON_TRY(const Dfa dfa, text_without(all, meter_));
    alternatives.push_back(expressions_.sequence({expressions_.automaton(dfa), one_of(token_ends)}));
  }
  return expressions_.choice(alternatives);
}

Result<ExprId> StructuralTagCompiler::any_text(const json::Value& value, const std::string& path, const Ends& ends) {
  BATON_TRY(Ends excludes, texts_of(value, "excludes", path));
  return text_to_ends({.stops = {}, .never = std::move(excludes)}, ends, path);
}

Result<ExprId> StructuralTagCompiler::sequence(const json::Value& value, const std::string& path, const Ends& ends) {
  BATON_TRY(const json::Value* elements, list_of(value, "elements", path));
  std::vector<ExprId> all;
  for (std::size_t i = 0; i < elements->size(); ++i) {
    const bool is_last = i + 1 == elements->size();
    BATON_TRY(const ExprId one, format((*elements)[i], fmt::format("{}/elements/{}", path, i), is_last ? ends : Ends{}));
    all.push_back(one);
  }
  return expressions_.sequence(all);
}

Result<ExprId> StructuralTagCompiler::any_of(const json::Value& value, const std::string& path, const Ends& ends) {
  BATON_TRY(const json::Value* elements, list_of(value, "elements", path));
  std::vector<ExprId> all;
  for (std::size_t i = 0; i < elements->size(); ++i) {
    BATON_TRY(const ExprId one, format((*elements)[i], fmt::format("{}/elements/{}", path, i), ends));
    all.push_back(one);
  }
  return expressions_.choice(all);
}

Result<ExprId> StructuralTagCompiler::repetition(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  BATON_TRY(const json::Value* content, field(value, "content", path));
  BATON_TRY(const ExprId one, format(*content, path + "/content", {}));
  const std::string_view type = value["type"].get_ref<const std::string&>();
  if (type == "optional") return expressions_.optional(one);
  if (type == "star") return expressions_.repeat(one, 0, kUnlimited);
  if (type == "plus") return expressions_.repeat(one, 1, kUnlimited);
  BATON_TRY(const json::Value* min_field, field(value, "min", path));
  BATON_TRY(const json::Value* max_field, field(value, "max", path));
  BATON_TRY(const std::int64_t min, json::to_int64(*min_field, path + "/min", 0, kMaxRepeat));
  BATON_TRY(const std::int64_t max, json::to_int64(*max_field, path + "/max", kUnlimited, kMaxRepeat));
  if (max != kUnlimited && max < min) return tag_error(ErrorCode::invalid_request, path + "/max", "is smaller than min");
  return expressions_.repeat(one, static_cast<int>(min), static_cast<int>(max));
}

Result<ExprId> StructuralTagCompiler::tag_behind(const json::Value& value, const std::string& path, std::size_t n_begun) {
  if (!value.is_object()) return tag_error(ErrorCode::invalid_request, path, "must be an object");
  for (const auto& [key, unused] : value.items())
    if (key != "type" && key != "begin" && key != "content" && key != "end")
      return tag_error(ErrorCode::unsupported, path + "/" + key, "is not supported in 'tag'");
  BATON_TRY(const std::string_view begin, text_of(value, "begin", path));
  BATON_TRY(const json::Value* content, field(value, "content", path));
  BATON_TRY(const Ends ends, ends_of(value, path));
  auto inside = format(*content, path + "/content", ends);
  if (!inside) return of_tag(std::move(inside.error()), begin);
  return expressions_.sequence({literal(begin.substr(n_begun)), *inside});
}

Result<ExprId> StructuralTagCompiler::tag(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  return tag_behind(value, path, 0);
}

/// A tag belongs to the first trigger that it begins with.
Result<std::vector<std::vector<ExprId>>> StructuralTagCompiler::tags_of_triggers(const json::Value& tags,
                                                                                 const std::string& path,
                                                                                 const Ends& triggers) {
  std::vector<std::vector<ExprId>> all(triggers.size());
  for (std::size_t k = 0; k < tags.size(); ++k) {
    if (!meter_.spend(8 + static_cast<std::int64_t>(triggers.size() / 4))) return over_budget(meter_);
    const std::string tag_path = fmt::format("{}/tags/{}", path, k);
    BATON_TRY(const std::string_view begin, text_of(tags[k], "begin", tag_path));
    const auto trigger =
        std::find_if(triggers.begin(), triggers.end(), [&](std::string_view one) { return begin.starts_with(one); });
    if (trigger == triggers.end()) return tag_error(ErrorCode::invalid_request, tag_path, "begins with none of the triggers");
    if (token_at(begin) != token_at(*trigger))
      return tag_error(ErrorCode::unsupported, tag_path, "begins with a token that its trigger cuts");
    BATON_TRY(const ExprId one, tag_behind(tags[k], tag_path, trigger->size()));
    all[static_cast<std::size_t>(trigger - triggers.begin())].push_back(one);
  }
  return all;
}

/// Free text up to a trigger, and a tag that begins with it.
Result<ExprId> StructuralTagCompiler::one_triggered_tag(const json::Value& tags, const std::string& path,
                                                        const TextStops& texts, const Ends& triggers) {
  BATON_TRY(std::vector<std::vector<ExprId>> tags_of_it, tags_of_triggers(tags, path, triggers));
  std::vector<ExprId> all;
  for (std::size_t i = 0; i < triggers.size(); ++i) {
    if (tags_of_it[i].empty()) continue;
    std::vector<ExprId> parts;
    if (begins_with_token(triggers[i])) {
      TextStops without = texts;
      without.never.insert(without.never.end(), without.stops.begin(), without.stops.end());
      without.stops.clear();
      BATON_TRY(const Dfa text, text_without(without, meter_));
      parts = {expressions_.automaton(text), literal(triggers[i])};
    } else {
      BATON_TRY(const Dfa text, text_up_to(texts, i, meter_));
      parts = {expressions_.automaton(text)};
    }
    parts.push_back(expressions_.choice(tags_of_it[i]));
    all.push_back(expressions_.sequence(parts));
  }
  return expressions_.choice(all);
}

Result<ExprId> StructuralTagCompiler::triggered_tags(const json::Value& value, const std::string& path, const Ends& ends) {
  BATON_TRY(const json::Value* tags, list_of(value, "tags", path));
  BATON_TRY_VOID(list_of(value, "triggers", path));
  BATON_TRY(Ends triggers, texts_of(value, "triggers", path));
  BATON_TRY(const Ends excludes, texts_of(value, "excludes", path));
  BATON_TRY(const bool at_least_one, flag_of(value, "at_least_one", path));
  BATON_TRY(const bool stop_after_first, flag_of(value, "stop_after_first", path));
  // A tag belongs to the trigger that is seen first: the shortest.
  std::sort(triggers.begin(), triggers.end(),
            [](auto a, auto b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  TextStops texts{.stops = triggers, .never = excludes};
  BATON_TRY(const ExprId rest, text_to_ends(texts, ends, path));
  texts.never.insert(texts.never.end(), ends.begin(), ends.end());
  BATON_TRY(const ExprId one, one_triggered_tag(*tags, path, texts, triggers));
  if (stop_after_first) {
    const ExprId stopped = ends.empty() ? one : expressions_.sequence({one, one_of(ends)});
    return at_least_one ? stopped : expressions_.choice({stopped, rest});
  }
  return expressions_.sequence({expressions_.repeat(one, at_least_one ? 1 : 0, kUnlimited), rest});
}

Result<ExprId> StructuralTagCompiler::separated_tags(const json::Value& value, const std::string& path, const Ends& /*ends*/) {
  BATON_TRY(const json::Value* tags, list_of(value, "tags", path));
  BATON_TRY(const std::string_view separator, text_of(value, "separator", path));
  BATON_TRY(const bool at_least_one, flag_of(value, "at_least_one", path));
  BATON_TRY(const bool stop_after_first, flag_of(value, "stop_after_first", path));
  std::vector<ExprId> all;
  for (std::size_t i = 0; i < tags->size(); ++i) {
    BATON_TRY(const ExprId one, tag_behind((*tags)[i], fmt::format("{}/tags/{}", path, i), 0));
    all.push_back(one);
  }
  const RuleId rule = expressions_.add_rule("a tag");
  expressions_.define(rule, expressions_.choice(all));
  const ExprId one = expressions_.rule(rule);
  const ExprId more = expressions_.repeat(expressions_.sequence({literal(separator), one}), 0, kUnlimited);
  const ExprId some = stop_after_first ? one : expressions_.sequence({one, more});
  return at_least_one ? some : expressions_.optional(some);
}

/// The older form, written as the newer one.
Result<json::Value> newer_format(const json::Value& tag, const std::string& path) {
  BATON_TRY(const json::Value* structures, list_of(tag, "structures", path));
  BATON_TRY(const json::Value* triggers, list_of(tag, "triggers", path));
  json::Value tags = json::Value::array();
  for (std::size_t i = 0; i < structures->size(); ++i) {
    const json::Value& one = (*structures)[i];
    const std::string one_path = fmt::format("{}/structures/{}", path, i);
    BATON_TRY(const std::string_view begin, text_of(one, "begin", one_path));
    BATON_TRY(const std::string_view end, text_of(one, "end", one_path));
    BATON_TRY(const json::Value* schema, field(one, "schema", one_path));
    tags.push_back({{"begin", begin}, {"content", {{"type", "json_schema"}, {"json_schema", *schema}}}, {"end", end}});
  }
  return json::Value{{"type", "triggered_tags"}, {"triggers", *triggers}, {"tags", std::move(tags)}};
}

Result<ExprId> StructuralTagCompiler::structural_tag(const json::Value& value, const std::string& path, const Ends& ends) {
  const bool is_older = json::find(value, "structures") != nullptr;
  for (const auto& [key, unused] : value.items())
    if (key != "type" && !(is_older ? key == "structures" || key == "triggers" : key == "format" || key == "tokens"))
      return tag_error(ErrorCode::unsupported, path + "/" + key, "is not supported");
  if (is_older) {
    BATON_TRY(const json::Value newer, newer_format(value, path));
    return format(newer, path, ends);
  }
  BATON_TRY(const json::Value* found, field(value, "format", path));
  BATON_TRY(const Ends tokens, texts_of(value, "tokens", path));
  const Ends outer = std::exchange(tokens_, tokens);
  const ByteSet outer_begins = std::exchange(token_begins_, {});
  for (const std::string_view token : tokens) token_begins_.set(static_cast<unsigned char>(token[0]));
  auto made = format(*found, path + "/format", ends);
  tokens_ = outer;
  token_begins_ = outer_begins;
  return made;
}

Result<ExprId> StructuralTagCompiler::compile(const json::Value& tag) {
  if (!tag.is_object()) return tag_error(ErrorCode::invalid_request, "#", "must be an object");
  if (const json::Value* type = json::find(tag, "type"); type != nullptr && !json::is_text(*type, "structural_tag"))
    return tag_error(ErrorCode::invalid_request, "#/type", "must be 'structural_tag'");
  return structural_tag(tag, "#", {});
}

}  // namespace

Result<RuleId> parse_structural_tag(JsonText& json_text, std::string_view text, std::vector<std::string>& ignored,
                                    WorkMeter& meter) {
  constexpr std::size_t kMostPerByte = 24;  // of values: "[0,0,..." while its list grows
  if (!meter.pass(8 * text.size()) || !meter.write(kMostPerByte * text.size())) return over_budget(meter);
  BATON_TRY(const json::Value tag, json::parse_cancellable(text, "the structural tag", [&] { return !meter.check(); }));
  BATON_TRY(const ExprId texts, StructuralTagCompiler(json_text, ignored, meter).compile(tag));
  const RuleId rule = json_text.expressions().add_rule("structural_tag");
  json_text.expressions().define(rule, texts);
  return rule;
}

}  // namespace baton::grammar
