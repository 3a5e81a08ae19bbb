/// Fuzzes the front ends of grammars: any text gives an error or a grammar within its limits, and what a mask allows
/// is what is accepted, token by token. The first byte chooses the kind; the others are its text.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "grammar/grammar.h"
#include "grammar/match/matcher.h"

namespace {

using namespace baton;

std::shared_ptr<const grammar::TokenTrie> small_vocabulary() {
  std::vector<std::string> bytes{""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"{\"", "\": ", "\"}", "[]", "12", "true", "aa", "ab", "\n  ", "\\u00", "\xC3\xA9"})
    bytes.emplace_back(token);
  return std::make_shared<grammar::TokenTrie>(std::move(bytes), std::vector<TokenId>{0});
}

void walk(grammar::Matcher& matcher, std::size_t seed) {
  grammar::MatcherState state = matcher.start();
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  for (int step = 0; step < 12; ++step) {
    if (!matcher.mask(state, mask)) return;
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < matcher.vocabulary().n_vocab(); ++token) {
      grammar::MatcherState copy = state;
      const bool is_accepted = matcher.accept(copy, token);
      const bool is_in_mask = (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
      check(is_accepted == is_in_mask, "a mask and accept differ");
      if (is_accepted && token != 0) allowed.push_back(token);
    }
    check(matcher.forced_bytes(state, 8).size() <= 8, "more forced bytes than were asked for");
    if (allowed.empty()) return;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    check(matcher.accept(state, allowed[(seed >> 33) % allowed.size()]), "an allowed token is not accepted");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto vocabulary = small_vocabulary();
  if (size == 0) return 0;
  constexpr grammar::GrammarKind kKinds[] = {grammar::GrammarKind::json_schema, grammar::GrammarKind::regex,
                                             grammar::GrammarKind::ebnf, grammar::GrammarKind::choice};
  const grammar::GrammarSource source{.kind = data[0] < 0x80 ? kKinds[data[0] % 4] : grammar::GrammarKind::structural_tag,
                                      .text = std::string(reinterpret_cast<const char*>(data + 1), size - 1),
                                      .spaces = data[0] % 8 < 4 ? grammar::JsonSpaces::readable : grammar::JsonSpaces::none};
  const grammar::GrammarLimits limits{.max_states = 20'000, .work = {.steps = 400'000, .bytes = 1 << 24}};
  const auto compiled = grammar::compile_grammar(source, limits, {});
  if (!compiled) {
    check(!compiled.error().message.empty(), "a refusal without a reason");
    return 0;
  }
  check(compiled->program->n_states() <= limits.max_states, "more states than the limit");
  grammar::Matcher matcher(compiled->program, vocabulary,
                           {.table_bytes = 1 << 16, .local_bytes = 1 << 16, .mask_bytes = 1 << 12});
  walk(matcher, size);
  return 0;
}
