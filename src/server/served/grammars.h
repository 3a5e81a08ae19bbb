/// The grammars of a served model's requests: compiled off the engine's thread, and kept.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/request/constraint.h"
#include "engine/request/metrics.h"
#include "grammar/grammar_cache.h"
#include "server/limits/budget.h"
#include "server/request/generation.h"
#include "server/request/structured_output.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

struct ServedModel;

/// What structured output costs, for /metrics.
struct GrammarCounts {
  std::array<std::int64_t, grammar::kGrammarKinds.size()> requests{};  ///< by kind
  std::int64_t refused = 0;                                            ///< requests whose grammar was refused
  grammar::GrammarCache::Counts cache;
  std::size_t cache_limit_bytes = 0;
  Histogram::Snapshot compile_seconds;
};

/// Turns what requests bring into constraints for the engine. Thread: any, several at once; compiling takes long, so
/// not the engine's and not the I/O thread.
class Grammars {
 public:
  /// Over the `n_vocab` ids of a model's logits, of which `ends` end an answer. Compilations take their memory from
  /// `compiling`, which must outlive this; null: they take what the limits of `options` allow.
  Grammars(std::int32_t n_vocab, std::vector<TokenId> ends, const grammar::GrammarCache::Options& options,
           Budget* compiling = nullptr);

  /// Whether the tree of the vocabulary was built. The first grammar builds it otherwise, which takes long.
  bool has_vocabulary() const;
  /// Builds it.
  void build_vocabulary(const Tokenizer& tokenizer) { cache(tokenizer); }

  /// A constraint, and which keywords of the schema have no effect if the grammar is compiled for the first time.
  struct Constrained {
    Constraint constraint;
    std::vector<std::string> ignored;
  };
  /// `tokenizer` must outlive the constraint. Compiled grammars are shared by requests of the same `salt` only. Errors:
  /// invalid_request for what the grammar cannot say or a limit forbids, with the field, and the place in it; unavailable
  /// when cancelled, or while other compilations or grammars in use leave no memory.
  Result<Constrained> constraint(const StructuredOutput& asked, const Tokenizer& tokenizer, std::string_view salt,
                                 const std::function<bool()>& is_cancelled);

  GrammarCounts counts() const;

 private:
  grammar::GrammarCache& cache(const Tokenizer& tokenizer) BATON_EXCLUDES(building_);
  Result<grammar::GrammarCache::Entry> compile(const grammar::GrammarSource& source, const Tokenizer& tokenizer,
                                               std::string_view salt, const std::function<bool()>& is_cancelled);

  const std::int32_t n_vocab_;
  const std::vector<TokenId> ends_;
  const grammar::GrammarCache::Options options_;
  Budget* const compiling_;
  std::array<Count, grammar::kGrammarKinds.size()> requests_;
  Count refused_;
  Histogram compile_seconds_{{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}};
  Mutex building_ BATON_ACQUIRED_BEFORE(mutex_);  // held while the vocabulary's tree is built
  mutable Mutex mutex_;
  std::unique_ptr<grammar::GrammarCache> cache_ BATON_GUARDED_BY(mutex_);  // set once
};

/// Sets the request's grammar if `tool_choice` demands or restricts calls, or a tool that may be called is strict, or
/// the request has a grammar already, such as a `response_format`. That one concerns only content: beside demanded calls it
/// has no effect, and where the model may call tools the answer is either calls or a text of it. Errors
/// (invalid_request): those of MessageFormat::grammar.
Result<void> demand_calls(const ServedModel& model, ChatRequest& request);

}  // namespace baton
