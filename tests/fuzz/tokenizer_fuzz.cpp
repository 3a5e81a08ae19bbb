/// Fuzzes the tokenizer: any bytes as tokenizer.json give a tokenizer or an error, and a tokenizer takes any text. The
/// input is the file, a byte 0, and a text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "text/split/unicode.h"
#include "text/tokenizer/stream_decoder.h"
#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const auto tokenizer = baton::Tokenizer::from_json(input.substr(0, end), "");
  if (!tokenizer) return 0;
  const std::string_view text = end == input.size() ? input : input.substr(end + 1);
  baton::WorkBudget budget({.steps = 20'000'000, .bytes = 64 << 20});
  auto encoded = tokenizer->encode(text, true, budget);
  if (!encoded) {
    baton::check(encoded.error().code == baton::ErrorCode::too_large, "text that is refused, but not for its cost");
    return 0;
  }
  std::vector<baton::TokenId> ids = std::move(*encoded);
  tokenizer->encode_plain(text);
  for (const std::uint8_t byte : text) ids.push_back(byte - 1);
  const std::string whole = tokenizer->decode(ids, false);
  baton::check(baton::unicode::is_valid_utf8(whole), "decoded text is not UTF-8");
  baton::StreamDecoder decoder(*tokenizer, {}, false, false);
  std::string joined;
  for (const baton::TokenId id : ids) joined += decoder.push(id).text;
  joined += decoder.finish().text;
  baton::check(joined == whole, "pieces do not make the whole");
  return 0;
}
