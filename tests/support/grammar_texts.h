/// Grammars and texts for tests: whether a grammar has a text, byte by byte.
#pragma once

#include <string>
#include <string_view>

#include "core/check.h"
#include "grammar/automaton/configurations.h"
#include "grammar/grammar.h"

namespace baton::testing {

inline grammar::CompiledGrammar compiled(grammar::GrammarKind kind, std::string_view text,
                                         grammar::JsonSpaces spaces = grammar::JsonSpaces::readable) {
  auto result = grammar::compile_grammar({.kind = kind, .text = std::string(text), .spaces = spaces}, {}, {});
  check(result.has_value(), result ? "" : result.error().message);
  return std::move(*result);
}

/// The message of the refusal; empty if there is none.
inline std::string refusal(grammar::GrammarKind kind, std::string_view text) {
  const auto result = grammar::compile_grammar({.kind = kind, .text = std::string(text)}, {}, {});
  return result ? std::string() : result.error().message;
}

inline bool accepts(const grammar::Program& program, std::string_view text) {
  grammar::Configurations configurations(program);
  auto at = configurations.start();
  for (const char byte : text) {
    if (at == grammar::Configurations::kDead) return false;
    at = configurations.step(at, static_cast<unsigned char>(byte));
  }
  return at != grammar::Configurations::kDead && configurations.is_complete(at);
}

}  // namespace baton::testing
