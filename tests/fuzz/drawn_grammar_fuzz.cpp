/// Fuzzes the compilation of grammars by documents drawn from a grammar of schemas, expressions, grammars, structural tags and
/// lists of tools: each compiles or is refused within 3 s of processor time and 350 MB, and says whether anybody waits often
/// enough; masks of what compiled are made, and what they allow is accepted. With BATON_PRINT_DOCUMENT in the environment it prints
/// the document of each input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sanitizer/allocator_interface.h>

#include "core/check.h"
#include "grammar/grammar.h"
#include "grammar/match/matcher.h"
#include "support/drawn.h"
#include "support/drawn_grammars.h"

namespace {

using namespace baton;

// The address sanitizer and -O1 make a compilation five to ten times slower, and its red zones take as much as small pieces.
constexpr double kSlower = 8;
constexpr double kMostSeconds = 3 * kSlower;
constexpr double kMostBetweenQuestions = 0.1 * kSlower;
constexpr std::size_t kMostBytes = std::size_t{350} << 20;
constexpr std::size_t kMaxDocumentBytes = std::size_t{1} << 18;

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::shared_ptr<const grammar::TokenTrie> small_vocabulary() {
  std::vector<std::string> bytes{""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"{\"", "\": ", "\"}", "[]", "12", "true", "aa", "ab", "\n  ", "<a", "</a>", "\xC3\xA9"})
    bytes.emplace_back(token);
  return std::make_shared<grammar::TokenTrie>(std::move(bytes), std::vector<TokenId>{0});
}

grammar::GrammarSource drawn_source(test::Drawn& draws) {
  using enum grammar::GrammarKind;
  const std::size_t kind = draws.below(8);
  test::DrawnGrammar drawn(draws, kMaxDocumentBytes);
  if (kind <= 2) return {.kind = json_schema, .text = drawn.schema()};
  if (kind == 3) return {.kind = regex, .text = drawn.regex()};
  if (kind == 4) return {.kind = ebnf, .text = drawn.ebnf()};
  if (kind == 5) return {.kind = structural_tag, .text = drawn.structural_tag()};
  if (kind == 6) return {.kind = structural_tag, .text = drawn.tool_list()};
  return {.kind = choice, .text = drawn.choices()};
}

/// What compiling has cost so far, asked for by the compilation itself.
class Cost {
 public:
  void look() {
    const double now = processor_seconds();
    most_between_ = std::max(most_between_, now - last_);
    last_ = now;
    most_bytes_ = std::max(most_bytes_, __sanitizer_get_current_allocated_bytes());
  }
  void check_limits() const {
    check(last_ - begin_ <= kMostSeconds, fmt::format("compiling took {:.1f} s", last_ - begin_));
    check(most_between_ <= kMostBetweenQuestions, fmt::format("{:.0f} ms without a question", 1e3 * most_between_));
    check(most_bytes_ <= at_first_ + kMostBytes, fmt::format("compiling took {} MB", (most_bytes_ - at_first_) >> 20));
  }

 private:
  const double begin_ = processor_seconds();
  const std::size_t at_first_ = __sanitizer_get_current_allocated_bytes();
  double last_ = begin_;
  double most_between_ = 0;
  std::size_t most_bytes_ = at_first_;
};

void walk(grammar::Matcher& matcher, test::Drawn& draws) {
  grammar::MatcherState state = matcher.start();
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  for (int step = 0; step < 4; ++step) {
    if (!matcher.mask(state, mask)) return;
    std::vector<TokenId> allowed;
    for (TokenId token = 1; token < matcher.vocabulary().n_vocab(); ++token)
      if ((mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0) allowed.push_back(token);
    if (allowed.empty()) return;
    check(matcher.accept(state, allowed[draws.below(allowed.size())]), "an allowed token is not accepted");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto vocabulary = small_vocabulary();
  test::Drawn draws(data, size, test::BehindBytes::zeros);
  const grammar::GrammarSource source = drawn_source(draws);
  if (std::getenv("BATON_PRINT_DOCUMENT") != nullptr) std::puts(source.text.c_str());
  Cost cost;
  const auto compiled = grammar::compile_grammar(source, {}, [&] {
    cost.look();
    return false;
  });
  cost.look();
  cost.check_limits();
  if (!compiled) {
    check(!compiled.error().message.empty(), "a refusal without a reason");
    check(compiled.error().code != ErrorCode::internal, compiled.error().message);
    return 0;
  }
  grammar::Matcher matcher(compiled->program, vocabulary,
                           {.table_bytes = 1 << 20, .local_bytes = 1 << 20, .mask_bytes = 1 << 16});
  walk(matcher, draws);
  return 0;
}
