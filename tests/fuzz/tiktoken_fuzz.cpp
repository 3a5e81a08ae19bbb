/// Fuzzes tiktoken.model: any text gives an error, or a tokenizer that takes any text and gives it back. The input is the
/// file, then the text after the bytes "\n--\n".
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "support/fuzz_parts.h"
#include "text/split/unicode.h"
#include "text/tokenizer/tiktoken_model.h"
#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const baton::test::FuzzFolder folder;
  std::string_view rest = baton::test::fuzz_text(data, size);
  const std::string_view file = baton::test::take_part(rest);
  const auto model = baton::TiktokenModel::from_text(file, {});
  if (!model) {
    baton::check(model.error().message.starts_with("tiktoken.model: "), "an error without its source");
    return 0;
  }
  for (const std::string& token : model->tokens) baton::check(!token.empty(), "a token without bytes");
  folder.write("tiktoken.model", file);
  const auto tokenizer = baton::Tokenizer::load_file(folder.path() / "tiktoken.model");
  if (!tokenizer) return 0;
  const std::string text = baton::unicode::to_valid_utf8(rest);
  const std::vector<baton::TokenId> ids = tokenizer->encode(text, /*add_special_tokens=*/false);
  for (const baton::TokenId id : ids) baton::check(tokenizer->contains(id), "an id without a token");
  const std::string decoded = tokenizer->decode(ids, /*skip_special_tokens=*/false);
  baton::check(baton::unicode::is_valid_utf8(decoded), "decoded text is not UTF-8");
  baton::check(decoded == text, "decoding gives another text");
  return 0;
}
