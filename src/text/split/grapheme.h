/// Grapheme clusters: what a reader takes for one character.
#pragma once

#include <cstddef>
#include <string_view>

namespace baton::unicode {

/// The length in bytes of the extended grapheme cluster at the front of `text` (valid UTF-8, not empty), which begins a
/// cluster. Source: UAX 29, rules GB1 to GB999, with the tables of the `tokenizers` library.
std::size_t length_of_cluster(std::string_view text);

}  // namespace baton::unicode
