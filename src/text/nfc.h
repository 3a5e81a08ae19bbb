/// Unicode's normalisation form C: characters and their marks in one spelling.
#pragma once

#include <string>
#include <string_view>

namespace baton::unicode {

/// `text` (valid UTF-8) in normalisation form C (Unicode 14, annex 15).
std::string to_nfc(std::string_view text);

}  // namespace baton::unicode
