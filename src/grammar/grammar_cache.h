/// Grammars that were compiled before, so that a schema is compiled once for all requests that bring it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/limits/shared_bytes.h"
#include "core/mutex.h"
#include "core/result.h"
#include "grammar/grammar.h"
#include "grammar/match/matcher.h"
#include "grammar/match/token_trie.h"

namespace baton::grammar {

/// The matchers of one vocabulary by their sources and salts: how long a grammar takes tells whether it was compiled
/// before, so clients who must not learn of each other have different salts. The cache keeps grammars in use, and of
/// the others the latest, as many as fit. Thread: any, several at once: two that ask for the same source compile it
/// once.
class GrammarCache {
 public:
  struct Options {
    GrammarLimits grammar = {};
    MatcherLimits matcher = {};
    /// Of all matchers together. Beyond it those in use forget what they can find out again, and new ones are refused.
    std::size_t max_bytes = std::size_t{256} << 20;
  };
  struct Entry {
    std::shared_ptr<Matcher> matcher;
    std::shared_ptr<const std::vector<std::string>> ignored;  ///< see CompiledGrammar
    double compile_seconds = 0;                               ///< that compiling took this call; 0: it was there
  };
  struct Counts {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::size_t n_entries = 0;
    std::size_t n_bytes = 0;
  };

  /// For whom a matcher is, and what its compilation asks meanwhile (see compile_grammar).
  struct Asker {
    std::string salt = {};  ///< matchers are shared by those with the same one
    std::function<bool()> is_cancelled = {};
    WorkBudget::TakeBytes take_bytes = {};
  };

  GrammarCache(std::shared_ptr<const TokenTrie> vocabulary, const Options& options);

  /// The matcher of a source, compiled on this thread if it is not there; waits while another thread compiles it.
  /// Errors are those of compile_grammar and are not kept; too_large also for a grammar that the cache cannot hold;
  /// unsupported also for a special token that the vocabulary does not have; unavailable also when cancelled while
  /// waiting, and while matchers in use leave it no room.
  Result<Entry> get(const GrammarSource& source, const Asker& asker);
  Counts counts() const;
  const TokenTrie& vocabulary() const { return *vocabulary_; }

 private:
  struct Key {
    GrammarSource source;
    std::string salt;

    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Kept {
    Kept(const Key& key, const Entry& entry, const std::shared_ptr<SharedBytes>& bytes);
    /// What keeping `key` takes: it is there twice.
    static std::size_t bytes_of(const Key& key) { return 2 * (sizeof(Key) + key.source.text.size() + key.salt.size()); }

    Key key;
    Entry entry;
    BytesShare key_bytes;
    bool is_used() const { return entry.matcher.use_count() > 1; }
  };
  using Order = std::list<Kept>;  // the one used last is in front
  class Compiling;

  Result<Entry> find(const Key& key, const std::function<bool()>& is_cancelled);
  Result<void> make_room(std::size_t n_bytes) BATON_REQUIRES(mutex_);

  const std::shared_ptr<const TokenTrie> vocabulary_;
  const Options options_;
  const std::shared_ptr<SharedBytes> bytes_;
  mutable Mutex mutex_;
  Condition is_compiled_;
  Order order_ BATON_GUARDED_BY(mutex_);
  std::map<Key, Order::iterator> places_ BATON_GUARDED_BY(mutex_);
  std::set<Key> compiling_ BATON_GUARDED_BY(mutex_);
  std::uint64_t hits_ BATON_GUARDED_BY(mutex_) = 0;
  std::uint64_t misses_ BATON_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::grammar
