/// Pieces of UTF-8, its grapheme clusters and normal forms, and the few properties of characters that tokenizers ask for.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace baton::unicode {

std::string to_utf8(char32_t code_point);
/// `text` with each maximal ill-formed part replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);
/// The bytes of the last character of valid UTF-8, empty for an empty text.
std::string_view last_character(std::string_view text);

/// The property White_Space: separators of utf8proc's categories, and the control characters that are spaces.
bool is_space(char32_t code_point);

/// Appends the lower case of a character: of one alone, so that a final sigma is any sigma (Unicode 17, chapter 3.13).
void append_lowercase(std::string& out, char32_t code_point);

/// GPT-2's alphabet: the printable character that stands for a byte, and back (nullopt for all other characters).
char32_t character_of_byte(unsigned char byte);
std::optional<unsigned char> byte_of_character(char32_t code_point);

/// Turns bytes that arrive in pieces into valid UTF-8: a character's bytes are held back until it is whole, ill-formed
/// parts become U+FFFD. The concatenated output equals to_valid_utf8 of the concatenated input.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  /// Ends the text: an unfinished character becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::string held_;  // the beginning of one character: at most three bytes
};

/// The length in bytes of the extended grapheme cluster at the front of `text` (valid UTF-8, not empty), which begins a
/// cluster. Source: UAX 29, rules GB1 to GB999, with the tables of the `tokenizers` library.
std::size_t length_of_cluster(std::string_view text);

/// Forms C and D spell the same text with as few and as many characters as possible; KC and KD also replace
/// compatibility characters, as ligatures and full-width letters, by plain ones.
enum class NormalForm { c, d, kc, kd };

/// `text` (valid UTF-8, else the program ends) in a normalisation form (Unicode Standard Annex 15), of the Unicode
/// version that utf8proc knows.
std::string normalized(std::string_view text, NormalForm form);

/// The same of Unicode 9, as the `tokenizers` library has it: marks and compositions added later stay as they are.
std::string normalized_by_unicode_9(std::string_view text, NormalForm form);

}  // namespace baton::unicode
