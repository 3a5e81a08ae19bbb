/// Searches a text for a compiled expression within a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/limits/work_budget.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace baton {

/// Searches one text, a few places at a time, so that a budget sees what it costs. One thread.
///
/// PCRE2 limits the steps at each place and does not say how many it took. So a place gets few steps first, and where they
/// are not enough eight times as many, again and again up to kMatchSteps; each limit that was reached is counted. The matches
/// are those of one search with kMatchSteps at each place.
class ExpressionSearch {
 public:
  enum class Found { match, nothing, gave_up };
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;  ///< less than `begin` after \\K
  };
  static constexpr std::uint32_t kMatchSteps = 1'000'000;
  static constexpr std::uint32_t kMatchHeapKib = 64 << 10;

  /// `code` was compiled with PCRE2_USE_OFFSET_LIMIT, `text` is valid UTF-8; both must outlive the search. `needs_start`: the
  /// expression depends on where a search begins (\\G), so that it runs at all places at once.
  ExpressionSearch(const pcre2_real_code_8& code, std::string_view text, bool needs_start, WorkMeter& meter);

  /// The first match that begins at the byte `from` or after it. Gives up where a place needs more than kMatchSteps or
  /// kMatchHeapKib, and where the budget is over.
  Found next(std::size_t from, Match& match);

 private:
  struct FreeData {
    void operator()(pcre2_real_match_data_8* data) const;
  };
  struct FreeContext {
    void operator()(pcre2_real_match_context_8* context) const;
  };

  static constexpr int kSearchesPerClock = 8;  // that match and are short: reading it takes a tenth of one

  std::size_t place_behind(std::size_t at) const;
  int run(std::size_t from, std::size_t last, std::uint32_t n_steps);
  int run_with_more(std::size_t from);
  int run_one_by_one(std::size_t& from, std::size_t last);
  bool count(std::size_t n_bytes, bool is_match);

  const pcre2_real_code_8& code_;
  std::string_view text_;
  const std::uint32_t first_steps_;
  std::size_t n_places_;
  WorkMeter& meter_;
  std::unique_ptr<pcre2_real_match_data_8, FreeData> data_;
  std::unique_ptr<pcre2_real_match_context_8, FreeContext> context_;
  std::uint32_t match_limit_ = 0;  // as set in the context
  std::size_t offset_limit_ = ~std::size_t{0};
  std::size_t window_end_ = 0;  // the last place of the window
  int n_until_clock_ = kSearchesPerClock;
  std::int64_t tick_ = 0;
  std::int64_t processor_ns_ = -1;  // of this thread at the last tick; negative: not known
};

}  // namespace baton
