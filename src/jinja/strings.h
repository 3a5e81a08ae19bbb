/// Operations of Python's str on UTF-8 text: characters are code points, whitespace and case are Unicode's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.h"

namespace baton::jinja {

/// The code point at byte `at` (U+FFFD for bytes that are not UTF-8) and, by char_size, how many bytes it takes (at
/// least 1).
char32_t char_at(std::string_view text, std::size_t at);
std::size_t char_size(std::string_view text, std::size_t at);
using unicode::append_utf8;
using unicode::is_valid_utf8;

bool is_space(char32_t character);
bool is_space_at(std::string_view text, std::size_t at);
/// Whether Python's repr shows the character as itself.
bool is_printable(char32_t character);
bool is_alphabetic(char32_t character);
bool is_upper(char32_t character);
bool is_lower(char32_t character);

std::size_t length(std::string_view text);
/// The byte offset of each code point, and the size at the end.
std::vector<std::size_t> offsets(std::string_view text);

/// At most the first `n_bytes` bytes, without half a character at the end.
std::string_view beginning(std::string_view text, std::size_t n_bytes);

/// The first place of `part` from the byte `from` on; npos if there is none. O(text + part), whatever they are, where
/// std::string_view's find takes O(text * part).
std::size_t find_first(std::string_view text, std::string_view part, std::size_t from);

std::string_view strip(std::string_view text, bool left, bool right);
/// The same, removing any of the code points in `set`. O(set log set + text log set).
std::string_view strip(std::string_view text, std::string_view set, bool left, bool right);

/// Parts of a text, and what may end their list early: false from `may_add` before a part is added.
struct Parts {
  std::vector<std::string_view> parts = {};
  std::function<bool()> may_add = {};  ///< empty: any number

  bool add(std::string_view part) {
    if (may_add && !may_add()) return false;
    parts.push_back(part);
    return true;
  }
};
/// Appends the parts of `text` between whitespace, or `separator` (not empty); at most `most` cuts (negative: any number),
/// from the left or the right.
void split(std::string_view text, std::optional<std::string_view> separator, std::int64_t most, Parts& out);
void split_lines(std::string_view text, Parts& out);
/// All parts between `separator`.
std::vector<std::string_view> split(std::string_view text, std::string_view separator);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
/// The first letter of each run of letters in upper case, the others in lower case.
std::string title(std::string_view text);

/// How often `part` occurs without overlap; characters + 1 for an empty one.
std::size_t count(std::string_view text, std::string_view part);
/// At most `most` occurrences replaced (negative: all).
std::string replace(std::string_view text, std::string_view old_part, std::string_view new_part, std::int64_t most);

}  // namespace baton::jinja
