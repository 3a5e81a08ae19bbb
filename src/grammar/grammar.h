/// What a caller may constrain a text by, and its compilation. Knows no engine, no server and no tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/json_text.h"
#include "grammar/automaton/program.h"

namespace baton::grammar {

enum class GrammarKind : std::uint8_t {
  json_object,     ///< any JSON object; the text is not looked at
  json_schema,     ///< the text is a JSON schema
  regex,           ///< the text is a regular expression of the whole answer
  choice,          ///< the text is a JSON list of strings, one of which is the answer
  ebnf,            ///< the text is a grammar in GBNF or Lark
  structural_tag,  ///< the text is JSON that puts literal texts, free text and the others in sequence
};

inline constexpr auto kGrammarKinds = std::to_array({GrammarKind::json_object, GrammarKind::json_schema, GrammarKind::regex,
                                                     GrammarKind::choice, GrammarKind::ebnf, GrammarKind::structural_tag});

constexpr std::string_view to_string(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::json_object: return "json_object";
    case GrammarKind::json_schema: return "json_schema";
    case GrammarKind::regex: return "regex";
    case GrammarKind::choice: return "choice";
    case GrammarKind::ebnf: return "ebnf";
    case GrammarKind::structural_tag: return "structural_tag";
  }
  return "unknown";
}

/// A grammar as it came with a request.
struct GrammarSource {
  GrammarKind kind = GrammarKind::json_object;
  std::string text = {};
  JsonSpaces spaces = JsonSpaces::readable;  ///< of JSON

  friend auto operator<=>(const GrammarSource&, const GrammarSource&) = default;
};

/// What compiling one grammar may cost.
struct GrammarLimits {
  std::size_t max_text_bytes = std::size_t{1} << 20;
  std::size_t max_states = std::size_t{1} << 19;
  WorkLimits work{.steps = std::int64_t{1} << 26, .bytes = std::int64_t{7} << 25};  ///< two seconds, 224 MiB at one time
};

/// A grammar that can be run, and what of its source has no effect (paths of unknown keywords, to be logged).
struct CompiledGrammar {
  std::shared_ptr<const Program> program;
  std::vector<std::string> ignored;
};

/// Compiles on the calling thread, which may be any. `is_cancelled` is asked every half a millisecond; empty: never
/// cancelled. `take_bytes` is asked for memory before it is taken, see WorkBudget; empty: there is as much as the limits
/// allow. Errors: invalid_request and unsupported, in words for the request's author (see the front ends); too_large for a
/// limit; unavailable when cancelled or refused memory.
Result<CompiledGrammar> compile_grammar(const GrammarSource& source, const GrammarLimits& limits,
                                        std::function<bool()> is_cancelled, WorkBudget::TakeBytes take_bytes = {});

}  // namespace baton::grammar
