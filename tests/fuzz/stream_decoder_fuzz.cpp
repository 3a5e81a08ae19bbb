/// Fuzzes the stream decoder: however a text is divided into tokens, its pieces are UTF-8 and end where a search byte
/// by byte through the whole text finds the first stop string.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include "core/check.h"
#include "support/tokenizer_files.h"
#include "text/split/unicode.h"
#include "text/tokenizer/stream_decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using baton::TokenId;

struct Expected {
  std::string text;
  std::optional<std::string> stop;
};

/// The text up to the stop string that ends first in `whole` and begins at `from` or later; of several the longest.
Expected search(const std::string& whole, std::size_t from, const std::vector<std::string>& stops, bool include_stop) {
  for (std::size_t end = from; end <= whole.size(); ++end) {
    const std::string* longest = nullptr;
    for (const std::string& stop : stops) {
      if (stop.empty() || end < from + stop.size() || !std::string_view(whole).substr(0, end).ends_with(stop)) continue;
      if (longest == nullptr || stop.size() > longest->size()) longest = &stop;
    }
    if (longest != nullptr) return {whole.substr(0, include_stop ? end : end - longest->size()), *longest};
  }
  return {whole, std::nullopt};
}

const baton::Tokenizer& tokenizer_of(bool byte_level) {
  static const auto make = [](const baton::json::Value& root) {
    return baton::Tokenizer::from_json(baton::json::dump(root), "").value();
  };
  static const baton::Tokenizer by_bytes = make(baton::test::byte_level_tokenizer());
  static const baton::Tokenizer with_fallback = make(baton::test::byte_fallback_tokenizer());
  return byte_level ? by_bytes : with_fallback;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  const baton::Tokenizer& tokenizer = tokenizer_of(input.ConsumeBool());
  const bool include_stop = input.ConsumeBool();
  const bool skip_special = input.ConsumeBool();
  const auto min_tokens = input.ConsumeIntegralInRange<std::int32_t>(0, 6);
  std::vector<std::string> stops(input.ConsumeIntegralInRange<std::size_t>(0, 4));
  for (std::string& stop : stops) stop = baton::unicode::to_valid_utf8(input.ConsumeRandomLengthString(8));
  std::vector<TokenId> ids;
  while (input.remaining_bytes() > 0 && ids.size() < 200)
    ids.push_back(input.ConsumeIntegralInRange<TokenId>(-1, tokenizer.n_vocab() + 1));

  baton::StreamDecoder decoder(tokenizer, stops, include_stop, skip_special, min_tokens);
  std::string text;
  std::optional<std::string> stop;
  const auto take = [&](const baton::StreamDecoder::Piece& piece) {
    baton::check(baton::unicode::is_valid_utf8(piece.text), "a piece is not UTF-8");
    baton::check(!stop || (piece.text.empty() && !piece.stop), "something came after the stop string");
    if (piece.stop) stop = piece.stop;
    text += piece.text;
  };
  std::size_t searched_from = 0;  // text of the first min_tokens tokens is not searched
  std::int32_t n_pushed = 0;
  bool has_later_text = min_tokens == 0;
  for (const TokenId id : ids) {
    take(decoder.push(id));
    if (++n_pushed == min_tokens) searched_from = text.size();
    has_later_text |= n_pushed > min_tokens && tokenizer.contains(id) && !(skip_special && tokenizer.is_special(id));
  }
  take(decoder.finish());

  const std::string whole = tokenizer.decode(ids, skip_special);
  const Expected expected = search(whole, has_later_text ? searched_from : whole.size() + 1, stops, include_stop);
  baton::check(stop == expected.stop, "another stop string than the first in the text");
  baton::check(text == expected.text, "the text ends elsewhere than at the stop string");
  return 0;
}
