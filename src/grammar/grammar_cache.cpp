/// A bounded cache of matchers.
#include "grammar/grammar_cache.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace baton::grammar {

/// While it lives, others wait for a source instead of compiling it. It ends also if memory runs out.
class GrammarCache::Compiling {
 public:
  Compiling(GrammarCache& cache, const Key& key) : cache_(cache), key_(key) {}
  Compiling(const Compiling&) = delete;
  Compiling& operator=(const Compiling&) = delete;
  ~Compiling() {
    const MutexLock lock(cache_.mutex_);
    cache_.compiling_.erase(key_);
    cache_.is_compiled_.notify_all();
  }

 private:
  GrammarCache& cache_;
  const Key& key_;
};

GrammarCache::Kept::Kept(const Key& key, const Entry& entry, const std::shared_ptr<SharedBytes>& bytes)
    : key(key), entry(entry), key_bytes(bytes) {
  key_bytes.set(bytes_of(key));
}

GrammarCache::GrammarCache(std::shared_ptr<const TokenTrie> vocabulary, const Options& options)
    : vocabulary_(std::move(vocabulary)), options_(options), bytes_(std::make_shared<SharedBytes>(options.max_bytes)) {}

/// The entry of a key that is there; without a matcher if the caller is to compile it.
Result<GrammarCache::Entry> GrammarCache::find(const Key& key, const std::function<bool()>& is_cancelled) {
  constexpr std::chrono::milliseconds kBetweenQuestions{5};
  const MutexLock lock(mutex_);
  while (compiling_.contains(key)) {
    if (is_cancelled && is_cancelled()) return fail(ErrorCode::unavailable, "the grammar's request was cancelled");
    is_compiled_.wait_for(mutex_, kBetweenQuestions);
  }
  if (const auto place = places_.find(key); place != places_.end()) {
    ++hits_;
    order_.splice(order_.begin(), order_, place->second);
    return place->second->entry;
  }
  ++misses_;
  compiling_.insert(key);
  return Entry{};
}

/// Drops unused matchers, the oldest first, until `n_bytes` more fit.
Result<void> GrammarCache::make_room(std::size_t n_bytes) {
  const auto fits = [&] { return bytes_->used() + n_bytes <= options_.max_bytes; };
  for (auto place = order_.end(); !fits() && place != order_.begin();) {
    --place;
    if (place->is_used()) continue;
    places_.erase(place->key);
    place = order_.erase(place);
  }
  if (fits()) return {};
  if (n_bytes > options_.max_bytes)
    return fail(ErrorCode::too_large,
                fmt::format("the grammar takes {} bytes of memory; at most {} are kept", n_bytes, options_.max_bytes));
  return fail(ErrorCode::unavailable,
              fmt::format("grammars of requests that wait or run take {} bytes of memory, this one would take {}; at most {} "
                          "are kept: try again later",
                          bytes_->used(), n_bytes, options_.max_bytes));
}

Result<GrammarCache::Entry> GrammarCache::get(const GrammarSource& source, const Asker& asker) {
  const Key key{source, asker.salt};
  BATON_TRY(Entry entry, find(key, asker.is_cancelled));
  if (entry.matcher != nullptr) return entry;
  const Compiling compiling(*this, key);
  const auto begin = std::chrono::steady_clock::now();
  BATON_TRY(CompiledGrammar compiled, compile_grammar(source, options_.grammar, asker.is_cancelled, asker.take_bytes));
  for (const std::string& text : compiled.program->token_texts())
    if (!vocabulary_->special_token(text))
      return fail(ErrorCode::unsupported, fmt::format("the vocabulary has no special token '{}'", text.substr(0, 100)));
  entry.ignored = std::make_shared<const std::vector<std::string>>(std::move(compiled.ignored));
  const MutexLock lock(mutex_);
  BATON_TRY_VOID(make_room(compiled.program->n_bytes() + sizeof(Matcher) + Kept::bytes_of(key)));
  entry.matcher = std::make_shared<Matcher>(std::move(compiled.program), vocabulary_, options_.matcher, bytes_);
  Order added;
  added.emplace_front(key, entry, bytes_);
  places_.emplace(key, added.begin());
  order_.splice(order_.begin(), added);
  entry.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return entry;
}

GrammarCache::Counts GrammarCache::counts() const {
  const MutexLock lock(mutex_);
  return {.hits = hits_, .misses = misses_, .n_entries = order_.size(), .n_bytes = bytes_->used()};
}

}  // namespace baton::grammar
