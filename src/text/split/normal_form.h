/// Unicode's normalisation forms: characters and their marks in one spelling.
#pragma once

#include <string>
#include <string_view>

namespace baton::unicode {

/// Forms C and D spell the same text with as few and as many characters as possible; KC and KD also replace
/// compatibility characters, as ligatures and full-width letters, by plain ones.
enum class NormalForm { c, d, kc, kd };

/// `text` (valid UTF-8, else the program ends) in a normalisation form (Unicode Standard Annex 15), of the Unicode
/// version that utf8proc knows.
std::string normalized(std::string_view text, NormalForm form);

/// The same of Unicode 9, as the `tokenizers` library has it: marks and compositions added later stay as they are.
std::string normalized_by_unicode_9(std::string_view text, NormalForm form);

}  // namespace baton::unicode
