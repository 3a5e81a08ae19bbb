/// Ranges of code points, and Unicode's general categories.
#include "grammar/automaton/char_ranges.h"

#include <algorithm>
#include <array>

#include <utf8proc.h>

namespace baton::grammar {

CharRanges normalized(CharRanges ranges) {
  std::sort(ranges.begin(), ranges.end());
  CharRanges result;
  for (const auto& [first, last] : ranges) {
    if (!result.empty() && first <= result.back().second + 1)
      result.back().second = std::max(result.back().second, last);
    else
      result.emplace_back(first, last);
  }
  return result;
}

CharRanges complement(CharRanges ranges) {
  CharRanges result;
  char32_t next = 0;
  for (const auto& [first, last] : normalized(std::move(ranges))) {
    if (first > next) result.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCodePoint) result.emplace_back(next, kLastCodePoint);
  return result;
}

namespace {

struct Category {
  std::string_view short_name;
  std::string_view long_name;
};

// In the order of utf8proc_category_t.
constexpr std::array<Category, 30> kCategories{{{"Cn", "Unassigned"},
                                                {"Lu", "Uppercase_Letter"},
                                                {"Ll", "Lowercase_Letter"},
                                                {"Lt", "Titlecase_Letter"},
                                                {"Lm", "Modifier_Letter"},
                                                {"Lo", "Other_Letter"},
                                                {"Mn", "Nonspacing_Mark"},
                                                {"Mc", "Spacing_Mark"},
                                                {"Me", "Enclosing_Mark"},
                                                {"Nd", "Decimal_Number"},
                                                {"Nl", "Letter_Number"},
                                                {"No", "Other_Number"},
                                                {"Pc", "Connector_Punctuation"},
                                                {"Pd", "Dash_Punctuation"},
                                                {"Ps", "Open_Punctuation"},
                                                {"Pe", "Close_Punctuation"},
                                                {"Pi", "Initial_Punctuation"},
                                                {"Pf", "Final_Punctuation"},
                                                {"Po", "Other_Punctuation"},
                                                {"Sm", "Math_Symbol"},
                                                {"Sc", "Currency_Symbol"},
                                                {"Sk", "Modifier_Symbol"},
                                                {"So", "Other_Symbol"},
                                                {"Zs", "Space_Separator"},
                                                {"Zl", "Line_Separator"},
                                                {"Zp", "Paragraph_Separator"},
                                                {"Cc", "Control"},
                                                {"Cf", "Format"},
                                                {"Cs", "Surrogate"},
                                                {"Co", "Private_Use"}}};

constexpr std::array<Category, 7> kGroups{{{"L", "Letter"},
                                           {"M", "Mark"},
                                           {"N", "Number"},
                                           {"P", "Punctuation"},
                                           {"S", "Symbol"},
                                           {"Z", "Separator"},
                                           {"C", "Other"}}};

/// The ranges of each category. Read once, because asking for every code point takes milliseconds.
const std::array<CharRanges, 30>& ranges_of_categories() {
  static const std::array<CharRanges, 30> ranges = [] {
    std::array<CharRanges, 30> all;
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
      CharRanges& one = all[static_cast<std::size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)))];
      if (!one.empty() && one.back().second + 1 == c)
        one.back().second = c;
      else
        one.emplace_back(c, c);
    }
    return all;
  }();
  return ranges;
}

}  // namespace

std::optional<CharRanges> category_ranges(std::string_view name) {
  if (name == "Any") return CharRanges{{0, kLastCodePoint}};
  for (std::size_t i = 0; i < kCategories.size(); ++i)
    if (name == kCategories[i].short_name || name == kCategories[i].long_name) return ranges_of_categories()[i];
  for (const Category& group : kGroups) {
    if (name != group.short_name && name != group.long_name) continue;
    CharRanges all;
    for (std::size_t i = 0; i < kCategories.size(); ++i)
      if (kCategories[i].short_name[0] == group.short_name[0])
        all.insert(all.end(), ranges_of_categories()[i].begin(), ranges_of_categories()[i].end());
    return normalized(std::move(all));
  }
  return std::nullopt;
}

void append_utf8(std::string& out, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

std::optional<char32_t> take_character(std::string_view& text) {
  utf8proc_int32_t code_point = -1;
  const auto n_bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                        static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size(), 4)), &code_point);
  if (n_bytes <= 0 || code_point < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(n_bytes));
  return static_cast<char32_t>(code_point);
}

}  // namespace baton::grammar
