/// Sets of characters as ranges of code points.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "grammar/automaton/expression.h"

namespace baton::grammar {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

/// Sorted, without overlaps and neighbours.
CharRanges normalized(CharRanges ranges);
/// All code points that are not in `ranges`.
CharRanges complement(CharRanges ranges);
/// The characters of a general category by its short or long name ("L", "Lu", "Letter"); nullopt for other names.
std::optional<CharRanges> category_ranges(std::string_view name);

void append_utf8(std::string& out, char32_t code_point);
/// The character at the front of UTF-8; the text is shortened by it. nullopt where it is not a valid character.
std::optional<char32_t> take_character(std::string_view& text);

}  // namespace baton::grammar
