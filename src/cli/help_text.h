/// Help texts and hints for mistyped names. CLI11 takes seconds to compile, so the formatter's class is in the .cpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace baton {

/// No line of a help text is longer, so that it fits the smallest usual terminal.
inline constexpr std::size_t kHelpColumns = 80;

/// `text` in lines of at most `n_columns` bytes, broken at spaces. Every line but the first begins with `indent` spaces; the
/// first has `n_used` bytes before it. A word that is longer than a line stays whole. Line feeds stay.
std::string wrapped(std::string_view text, std::size_t n_columns, std::size_t indent, std::size_t n_used);

/// The name that takes the fewest edits (letters changed, added or left out) to reach from `word`, the first of several;
/// empty if there are no names.
std::string_view nearest_name(std::string_view word, std::span<const std::string> names);
/// The same, if no more than a third of the letters differ; else empty.
std::string_view near_name(std::string_view word, std::span<const std::string> names);
/// Letters to change, add or leave out.
int edit_distance(std::string_view a, std::string_view b);

/// Makes the help texts of `app` and of all its subcommands made from now on fit kHelpColumns.
void use_help_text(CLI::App& app);

}  // namespace baton
