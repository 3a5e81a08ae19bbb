/// Fuzzes tokenizer.model: any bytes give a SentencePiece tokenizer or an error, and a tokenizer takes any text. The input is
/// a byte for the length of the text, the text, and the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "text/split/unicode.h"
#include "text/tokenizer/sentencepiece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t n_text = std::min<std::size_t>(data[0], size - 1);
  const std::string text = baton::unicode::to_valid_utf8(input.substr(1, n_text));
  input.remove_prefix(1 + n_text);
  for (const bool is_legacy : {true, false}) {
    const auto model = baton::SentencePieceModel::from_bytes(input, "x.model", {.is_legacy = is_legacy});
    if (!model) continue;
    std::vector<baton::TokenId> ids;
    model->encode(text, /*begins_input=*/true, ids);
    for (const baton::TokenId id : ids) baton::check(model->vocabulary().contains(id), "an id without a piece");
  }
  return 0;
}
