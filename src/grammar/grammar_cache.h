/// Grammars that were compiled before, so that a schema is compiled once for all requests that bring it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace baton::grammar {

/// The matchers of one vocabulary by their sources. A matcher lives as long as somebody has it; the cache keeps those
/// used last, as many as fit. Thread: any, several at once: two that ask for the same source compile it once.
class GrammarCache {
 public:
  struct Options {
    GrammarLimits grammar = {};
    MatcherLimits matcher = {};
    std::size_t max_bytes = std::size_t{256} << 20;  ///< of the sources and of what their matchers know
  };
  struct Entry {
    std::shared_ptr<Matcher> matcher;
    std::shared_ptr<const std::vector<std::string>> ignored;  ///< see CompiledGrammar
  };
  struct Counts {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::size_t n_entries = 0;
    std::size_t n_bytes = 0;
  };

  GrammarCache(std::shared_ptr<const TokenTrie> vocabulary, const Options& options)
      : vocabulary_(std::move(vocabulary)), options_(options) {}

  /// The matcher of a source, compiled on this thread if it is not there; waits while another thread compiles it.
  /// Errors are those of compile_grammar and are not kept; unavailable also when cancelled while waiting.
  Result<Entry> get(const GrammarSource& source, const std::function<bool()>& is_cancelled);
  Counts counts();
  const TokenTrie& vocabulary() const { return *vocabulary_; }

 private:
  struct Kept {
    GrammarSource source;
    Entry entry;
    std::size_t n_bytes = 0;
  };
  using Order = std::list<Kept>;  // the one used last is in front

  void drop_the_oldest();
  std::size_t bytes_of(const Kept& kept) const;

  const std::shared_ptr<const TokenTrie> vocabulary_;
  const Options options_;
  std::mutex mutex_;  // guards all below
  std::condition_variable is_compiled_;
  Order order_;
  std::map<GrammarSource, Order::iterator> places_;
  std::set<GrammarSource> compiling_;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
};

}  // namespace baton::grammar
