/// A bounded cache of matchers.
#include "grammar/grammar_cache.h"

#include <chrono>
#include <utility>

namespace baton::grammar {

std::size_t GrammarCache::bytes_of(const Kept& kept) const {
  return 2 * kept.source.text.size() + sizeof(Kept) + kept.entry.matcher->n_bytes();
}

/// A matcher learns while it is used, so its size is asked for again here. The newest entry stays.
void GrammarCache::drop_the_oldest() {
  std::size_t n_bytes = 0;
  for (Kept& kept : order_) n_bytes += kept.n_bytes = bytes_of(kept);
  while (n_bytes > options_.max_bytes && order_.size() > 1) {
    n_bytes -= order_.back().n_bytes;
    places_.erase(order_.back().source);
    order_.pop_back();
  }
}

Result<GrammarCache::Entry> GrammarCache::get(const GrammarSource& source, const std::function<bool()>& is_cancelled) {
  constexpr std::chrono::milliseconds kBetweenQuestions{5};
  {
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
  }
  auto compiled = compile_grammar(source, options_.grammar, is_cancelled);
  Entry entry;
  if (compiled) {
    entry.matcher = std::make_shared<Matcher>(compiled->program, vocabulary_, options_.matcher);
    entry.ignored = std::make_shared<const std::vector<std::string>>(std::move(compiled->ignored));
  }
  const std::lock_guard lock(mutex_);
  compiling_.erase(source);
  is_compiled_.notify_all();
  if (!compiled) return tl::unexpected<Error>(std::move(compiled.error()));
  order_.push_front({.source = source, .entry = entry});
  places_.emplace(source, order_.begin());
  drop_the_oldest();
  return entry;
}

GrammarCache::Counts GrammarCache::counts() {
  const std::lock_guard lock(mutex_);
  Counts counts{.hits = hits_, .misses = misses_, .n_entries = order_.size()};
  for (const Kept& kept : order_) counts.n_bytes += bytes_of(kept);
  return counts;
}

}  // namespace baton::grammar
