/// Searches by PCRE2, place by place where they are expensive.
#include "text/split/expression_search.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace baton {
namespace {

constexpr std::uint32_t kFewSteps = 128;
constexpr std::int64_t kMatchStepsPerStep = 4;  // PCRE2's steps are shorter

// Places of one search. A place may cost a pass over the rest of the text, even if it matches nothing and takes one step; and
// so may a search, whose places are then best many. The number doubles while searches are short.
constexpr std::size_t kFewPlaces = 8;
constexpr std::size_t kFirstPlaces = 64;
constexpr std::size_t kManyPlaces = 4096;
constexpr std::size_t kSearchesOfRest = 16;

constexpr std::int64_t kNsPerStep = 20;

std::int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

/// A search that takes longer is slow; one for a word takes less than a microsecond. Two ticks of the coarse clock.
std::int64_t slow_ns() {
  static const std::int64_t value = [] {
    timespec tick{};
    clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    return std::max<std::int64_t>(6'000'000, (tick.tv_sec * 1'000'000'000 + tick.tv_nsec) * 3 / 2);
  }();
  return value;
}

}  // namespace

void ExpressionSearch::FreeData::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free(data); }
void ExpressionSearch::FreeContext::operator()(pcre2_real_match_context_8* context) const { pcre2_match_context_free(context); }

ExpressionSearch::ExpressionSearch(const pcre2_real_code_8& code, std::string_view text, bool needs_start, WorkMeter& meter)
    : code_(code),
      text_(text),
      first_steps_(needs_start ? kMatchSteps : kFewSteps),
      n_places_(needs_start ? text.size() : kFirstPlaces),
      meter_(meter),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      tick_(nanoseconds(CLOCK_MONOTONIC_COARSE)) {
  check(data_ != nullptr && context_ != nullptr, "out of memory for a match");
  pcre2_set_heap_limit(context_.get(), kMatchHeapKib);
}

/// The first character after the byte `at`.
std::size_t ExpressionSearch::place_behind(std::size_t at) const {
  ++at;
  while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80) ++at;
  return at;
}

/// A search for a match that begins at a place from `from` to `last`.
int ExpressionSearch::run(std::size_t from, std::size_t last, std::uint32_t n_steps) {
  if (n_steps != match_limit_) pcre2_set_match_limit(context_.get(), n_steps);
  if (last != offset_limit_) pcre2_set_offset_limit(context_.get(), last);
  match_limit_ = n_steps;
  offset_limit_ = last;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text_.empty() ? "" : text_.data());
  std::uint32_t options = PCRE2_NO_UTF_CHECK;
  int status = pcre2_match(&code_, subject, text_.size(), from, options, data_.get(), context_.get());
  if (status == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The JIT runs on a small stack; the interpreter takes memory from the heap.
    options |= PCRE2_NO_JIT;
    status = pcre2_match(&code_, subject, text_.size(), from, options, data_.get(), context_.get());
  }
  return status;
}

/// The same at one place, for which kFewSteps were not enough.
int ExpressionSearch::run_with_more(std::size_t from) {
  int status = PCRE2_ERROR_MATCHLIMIT;
  for (std::uint32_t n_steps = kFewSteps; status == PCRE2_ERROR_MATCHLIMIT && n_steps < kMatchSteps;) {
    if (!meter_.spend(n_steps / kMatchStepsPerStep)) return PCRE2_ERROR_MATCHLIMIT;
    n_steps = std::min(8 * n_steps, kMatchSteps);
    status = run(from, from, n_steps);
  }
  return status;
}

/// The same at each place on its own, up to the first one that needs more than kFewSteps or matches: `from` afterwards.
int ExpressionSearch::run_one_by_one(std::size_t& from, std::size_t last) {
  while (true) {
    int status = run(from, from, kFewSteps);
    const bool needs_more = status == PCRE2_ERROR_MATCHLIMIT;
    if (needs_more) status = run_with_more(from);
    if (needs_more || status != PCRE2_ERROR_NOMATCH || place_behind(from) > last || !meter_.spend(1)) return status;
    from = place_behind(from);
  }
}

/// Counts a search that passed over `n_bytes`; false where the budget is over.
///
/// PCRE2 takes a repeat of one character for one step, however many it passes over. What it does not count shows in the time:
/// a thread that searches for long asks whether it is cancelled, and pays for slow searches by their processor time.
bool ExpressionSearch::count(std::size_t n_bytes, bool is_match) {
  const std::int64_t n_steps = 1 + static_cast<std::int64_t>(n_bytes / 8);
  if (is_match && --n_until_clock_ > 0) return meter_.spend(n_steps);
  n_until_clock_ = kSearchesPerClock;
  const std::int64_t tick = nanoseconds(CLOCK_MONOTONIC_COARSE);  // changes every 4 ms or so
  const std::int64_t since = tick - std::exchange(tick_, tick);
  if (since != 0) {
    const bool is_slow = since > slow_ns();
    if (is_slow) n_until_clock_ = 1;
    if (is_slow && first_steps_ < kMatchSteps) n_places_ = std::max(kFewPlaces, n_places_ / 4);
    const std::int64_t before = std::exchange(processor_ns_, nanoseconds(CLOCK_THREAD_CPUTIME_ID));
    const std::int64_t took = before < 0 ? 0 : processor_ns_ - before;
    if (!meter_.check() || (is_slow && took > slow_ns() && !meter_.spend(took / kNsPerStep))) return false;
  }
  return meter_.spend(n_steps);
}

ExpressionSearch::Found ExpressionSearch::next(std::size_t from, Match& match) {
  while (true) {
    const std::size_t begin = from;
    // A window is used until a search begins after it.
    std::size_t last =
        from <= window_end_ && first_steps_ < kMatchSteps ? window_end_ : std::min(text_.size(), from + n_places_);
    window_end_ = last;
    int status = run(from, last, first_steps_);
    if (status == PCRE2_ERROR_MATCHLIMIT && first_steps_ < kMatchSteps) {
      status = run_one_by_one(from, last);
      if (status == PCRE2_ERROR_NOMATCH) last = from;
    }
    if (status >= 0) {
      const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_.get());
      match = {offsets[0], offsets[1]};
      return count(match.end > begin ? match.end - begin : 0, /*is_match=*/true) ? Found::match : Found::gave_up;
    }
    if (status != PCRE2_ERROR_NOMATCH || !count(last - begin, /*is_match=*/false)) return Found::gave_up;
    if (last >= text_.size()) return Found::nothing;
    from = place_behind(last);
    const std::size_t most = std::max(kManyPlaces, (text_.size() - last) / kSearchesOfRest);
    if (last - begin >= n_places_) n_places_ = std::min(2 * n_places_, most);
  }
}

}  // namespace baton
