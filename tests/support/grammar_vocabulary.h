/// A vocabulary of the tiny model's tokens, grammars over it, and the texts of its answers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request/constraint.h"
#include "engine/request/request.h"
#include "grammar/match/matcher.h"
#include "support/grammar_texts.h"
#include "support/tiny_engine.h"

namespace baton::testing {

inline constexpr TokenId kEndOfText = 2;  ///< the tiny model's end-of-sequence id

/// Tokens 3 to 97 are the printable characters; the next ones are pieces of JSON; 0 and 1 are never allowed.
inline std::shared_ptr<const grammar::TokenTrie> tiny_vocabulary(std::size_t n_vocab = 160) {
  std::vector<std::string> bytes(3);
  for (char c = ' '; c <= '~'; ++c) bytes.emplace_back(1, c);
  for (const char* piece : {"{\"", "\":",  "\": ",  "\",", "\", \"", "\"}",     "}}",   "]}",       "[]",    "12",  "1,",
                            "0.",  "true", "null",  "fal", "se",     "na",      "name", "me\": \"", "value", "\\n", ", ",
                            "ab",  "abab", "ab\":", "\"]", "aaaa",   "x}, {\"", "city", "cit",      "y\": ", "ten", "\n"})
    bytes.emplace_back(piece);
  bytes.resize(n_vocab);
  return std::make_shared<grammar::TokenTrie>(std::move(bytes), std::vector<TokenId>{kEndOfText});
}

/// Cuts a text into the longest tokens, from its begin.
inline std::vector<TokenId> encode(const grammar::TokenTrie& vocabulary, std::string_view text) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    TokenId longest = -1;
    for (TokenId token = 0; token < vocabulary.n_vocab(); ++token) {
      const std::string_view bytes = vocabulary.bytes_of(token);
      if (!bytes.empty() && text.starts_with(bytes) && (longest < 0 || bytes.size() > vocabulary.bytes_of(longest).size()))
        longest = token;
    }
    if (longest < 0) return {};
    tokens.push_back(longest);
    text.remove_prefix(vocabulary.bytes_of(longest).size());
  }
  return tokens;
}

inline std::string text_of(std::span<const TokenId> tokens) {
  static const auto vocabulary = tiny_vocabulary();
  std::string text;
  for (const TokenId token : tokens) text += vocabulary->bytes_of(token);
  return text;
}

/// A constraint of a grammar over the tiny vocabulary. `has_drafts`: with an encoder.
inline Constraint constraint_of(grammar::GrammarKind kind, std::string_view text, bool has_drafts = false) {
  static const auto vocabulary = tiny_vocabulary();
  Constraint constraint;
  constraint.matcher = std::make_shared<grammar::Matcher>(compiled(kind, text, grammar::JsonSpaces::none).program, vocabulary);
  if (has_drafts) constraint.encode = [](std::string_view of) { return encode(*vocabulary, of); };
  return constraint;
}

inline bool accepts(const Constraint& constraint, std::string_view text) {
  return accepts(constraint.matcher->program(), text);
}

}  // namespace baton::testing
