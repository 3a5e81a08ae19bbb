/// Base64, in which tokenizer files hold bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

/// The bytes of base64 (RFC 4648, section 4); nullopt where `text` is not base64.
std::optional<std::string> bytes_of_base64(std::string_view text);

/// The same, each byte as GPT-2's character.
std::optional<std::string> characters_of_base64(std::string_view text);

}  // namespace baton
