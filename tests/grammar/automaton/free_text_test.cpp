/// Free text against a search for its markers, over all short texts.
#include "grammar/automaton/free_text.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/limits/work_budget.h"

namespace baton::grammar {
namespace {

/// The marker that ends first in `text`, and where; of the markers that end there the longest.
struct FirstMarker {
  std::size_t end = std::string::npos;
  std::string_view marker;
};

FirstMarker first_marker(std::string_view text, const TextStops& texts) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::string_view longest;
    for (const auto* markers : {&texts.stops, &texts.never})
      for (const std::string_view marker : *markers)
        if (text.substr(0, end).ends_with(marker) && marker.size() > longest.size()) longest = marker;
    if (!longest.empty()) return {end, longest};
  }
  return {};
}

TEST(FreeText, agrees_with_a_search) {
  const std::vector<TextStops> cases{
      {.stops = {"ab"}, .never = {}},         {.stops = {"aab", "ba"}, .never = {"bb"}}, {.stops = {"a"}, .never = {"ab", "b"}},
      {.stops = {"abab"}, .never = {"bab"}},  {.stops = {}, .never = {"aa", "bab"}},     {.stops = {}, .never = {}},
      {.stops = {"aba", "abb"}, .never = {}},
  };
  WorkBudget budget({.steps = 1'000'000, .bytes = 1 << 24}, {});
  WorkMeter meter(budget);
  for (const TextStops& texts : cases) {
    const Dfa without = *text_without(texts, meter);
    const Dfa up_to_any = *text_up_to(texts, {}, meter);
    for (int length = 0; length <= 9; ++length)
      for (int bits = 0; bits < 1 << length; ++bits) {
        std::string text;
        for (int i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
        const FirstMarker first = first_marker(text, texts);
        EXPECT_EQ(without.accepts(text), first.marker.empty()) << text;
        const auto stop = std::find(texts.stops.begin(), texts.stops.end(), first.marker);
        const bool ends = !first.marker.empty() && first.end == text.size() && stop != texts.stops.end();
        EXPECT_EQ(up_to_any.accepts(text), ends) << text;
        for (std::size_t which = 0; length <= 5 && which < texts.stops.size(); ++which)
          EXPECT_EQ(text_up_to(texts, which, meter)->accepts(text), ends && texts.stops[which] == *stop) << text;
      }
  }
}

TEST(FreeText, refuses_markers_that_are_too_long) {
  WorkBudget budget({.steps = 10'000'000, .bytes = 1 << 30}, {});
  WorkMeter meter(budget);
  const std::string marker(Dfa::kMaxStates, 'x');
  const auto dfa = text_without({.stops = {}, .never = {marker}}, meter);
  ASSERT_FALSE(dfa);
  EXPECT_EQ(dfa.error().code, ErrorCode::too_large);
}

}  // namespace
}  // namespace baton::grammar
