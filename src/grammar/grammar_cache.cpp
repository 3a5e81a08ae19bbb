/// A bounded cache of matchers.
#include "grammar/grammar_cache.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace baton::grammar {

/// While it lives, others wait for a source instead of compiling it. It ends also if memory runs out.
class GrammarCache::Compiling {
 public:
  Compiling(GrammarCache& cache, const GrammarSource& source) : cache_(cache), source_(source) {}
  Compiling(const Compiling&) = delete;
  Compiling& operator=(const Compiling&) = delete;
  ~Compiling() {
    const std::scoped_lock lock(cache_.mutex_);
    cache_.compiling_.erase(source_);
    cache_.is_compiled_.notify_all();
  }

 private:
  GrammarCache& cache_;
  const GrammarSource& source_;
};

/// The source is also a key.
GrammarCache::Kept::Kept(const GrammarSource& source, const Entry& entry, const std::shared_ptr<SharedBytes>& bytes)
    : source(source), entry(entry), source_bytes(bytes) {
  source_bytes.set(2 * (sizeof(GrammarSource) + source.text.size()));
}

GrammarCache::GrammarCache(std::shared_ptr<const TokenTrie> vocabulary, const Options& options)
    : vocabulary_(std::move(vocabulary)), options_(options), bytes_(std::make_shared<SharedBytes>(options.max_bytes)) {}

/// The entry of a source that is there; without a matcher if the caller is to compile it.
Result<GrammarCache::Entry> GrammarCache::find(const GrammarSource& source, const std::function<bool()>& is_cancelled) {
  constexpr std::chrono::milliseconds kBetweenQuestions{5};
  std::unique_lock lock(mutex_);
  while (compiling_.contains(source)) {
    if (is_cancelled && is_cancelled()) return fail(ErrorCode::unavailable, "the grammar's request was cancelled");
    is_compiled_.wait_for(lock, kBetweenQuestions);
  }
  if (const auto place = places_.find(source); place != places_.end()) {
    ++hits_;
    order_.splice(order_.begin(), order_, place->second);
    return place->second->entry;
  }
  ++misses_;
  compiling_.insert(source);
  return Entry{};
}

/// Drops matchers that nobody uses, the oldest first, until `n_bytes` more fit. The mutex is held.
Result<void> GrammarCache::make_room(std::size_t n_bytes) {
  const auto fits = [&] { return bytes_->used() + n_bytes <= options_.max_bytes; };
  for (auto place = order_.end(); !fits() && place != order_.begin();) {
    --place;
    if (place->is_used()) continue;
    places_.erase(place->source);
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

Result<GrammarCache::Entry> GrammarCache::get(const GrammarSource& source, const std::function<bool()>& is_cancelled) {
  BATON_TRY(Entry entry, find(source, is_cancelled));
  if (entry.matcher != nullptr) return entry;
  const Compiling compiling(*this, source);
  const auto begin = std::chrono::steady_clock::now();
  BATON_TRY(CompiledGrammar compiled, compile_grammar(source, options_.grammar, is_cancelled));
  for (const std::string& text : compiled.program->token_texts())
    if (!vocabulary_->special_token(text))
      return fail(ErrorCode::unsupported, fmt::format("the vocabulary has no special token '{}'", text.substr(0, 100)));
  entry.ignored = std::make_shared<const std::vector<std::string>>(std::move(compiled.ignored));
  const std::scoped_lock lock(mutex_);
  BATON_TRY_VOID(make_room(compiled.program->n_bytes() + 2 * source.text.size()));
  entry.matcher = std::make_shared<Matcher>(std::move(compiled.program), vocabulary_, options_.matcher, bytes_);
  order_.emplace_front(source, entry, bytes_);
  places_.emplace(source, order_.begin());
  entry.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return entry;
}

GrammarCache::Counts GrammarCache::counts() const {
  const std::scoped_lock lock(mutex_);
  return {.hits = hits_, .misses = misses_, .n_entries = order_.size(), .n_bytes = bytes_->used()};
}

}  // namespace baton::grammar
