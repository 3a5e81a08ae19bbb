/// Fuzzes tekken.json: any text gives an error, or a tokenizer that takes any text; and where its vocabulary has every
/// byte, decoding gives the text back. The input is the file, then the text after the bytes "\n--\n".
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "io/json.h"
#include "support/fuzz_parts.h"
#include "text/split/unicode.h"
#include "text/tokenizer/tekken.h"
#include "text/tokenizer/tokenizer.h"

namespace {

/// Whether each byte is a token of its own.
bool has_all_bytes(const baton::Tekken& tekken) {
  std::array<bool, 256> is_there{};
  for (const std::string& token : tekken.tokens)
    for (int byte = 0; byte < 256; ++byte)
      if (token == baton::unicode::to_utf8(baton::unicode::character_of_byte(static_cast<unsigned char>(byte))))
        is_there[static_cast<std::size_t>(byte)] = true;
  for (const bool there : is_there)
    if (!there) return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = baton::test::fuzz_text(data, size);
  const std::string_view file = baton::test::take_part(rest);
  const auto root = baton::json::parse(file, "the input");
  if (!root) return 0;
  const auto tekken = baton::Tekken::from_json(*root);
  if (!tekken) {
    baton::check(tekken.error().message.starts_with("tekken.json"), "an error without its source");
    return 0;
  }
  for (const std::string& token : tekken->special_tokens) baton::check(!token.empty(), "a special token without a text");
  for (const std::string& token : tekken->tokens) baton::check(!token.empty(), "a token without bytes");
  if (baton::json::find(*root, "model") != nullptr) return 0;  // read as a tokenizer.json
  const auto tokenizer = baton::Tokenizer::from_json(file, "");
  if (!tokenizer) return 0;
  const std::string text = baton::unicode::to_valid_utf8(rest);
  const std::vector<baton::TokenId> ids = tokenizer->encode(text, /*add_special_tokens=*/false);
  for (const baton::TokenId id : ids) baton::check(tokenizer->contains(id), "an id without a token");
  const std::string decoded = tokenizer->decode(ids, /*skip_special_tokens=*/false);
  baton::check(baton::unicode::is_valid_utf8(decoded), "decoded text is not UTF-8");
  if (has_all_bytes(*tekken)) baton::check(decoded == text, "decoding gives another text");
  return 0;
}
