/// Sets of characters, as the `tokenizers` library has them: its tables are of older Unicode versions than utf8proc's, and
/// a tokenizer was trained with them.
#pragma once

namespace baton::unicode {

/// Punctuation of Unicode 8, and all of ASCII that is neither letter, digit, space nor control character.
bool is_punctuation(char32_t c);
/// Marks of all kinds, of Unicode 9.
bool is_combining_mark(char32_t c);
/// Digits, letters that are numbers, and other numbers, of Unicode 17.
bool is_numeric(char32_t c);
/// Characters that the normalisation forms of Unicode 9 leave alone and those of later versions do not.
bool is_beyond_normalization(char32_t c);

/// A character that PCRE2 (Unicode 14) takes for what Oniguruma (Unicode 17) takes `c` for: one of the same general
/// category and length in UTF-8. `c` itself where both know it.
char32_t known_to_regex(char32_t c);

}  // namespace baton::unicode
