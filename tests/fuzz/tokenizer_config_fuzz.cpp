/// Fuzzes the files beside a tokenizer, and the vocabulary in files of its own: any bytes give an error or a tokenizer, and
/// each of its chat templates can be chosen by its name. The input is tokenizer_config.json, special_tokens_map.json,
/// chat_template.json, config.json, vocab.json, merges.txt and added_tokens.json with "\n--\n" between them; an empty one
/// does not exist. Where vocab.json does not exist, there is a tokenizer.json with byte fallback if config.json exists, and
/// else one of bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "io/json.h"
#include "support/fuzz_parts.h"
#include "support/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"

namespace {

/// The tokenizer.json that belongs to the other files; empty for none.
std::string tokenizer_json(bool has_config, bool has_vocab) {
  static const std::string of_bytes = baton::json::dump(baton::test::byte_level_tokenizer());
  static const std::string with_fallback = baton::json::dump(baton::test::byte_fallback_tokenizer());
  return has_vocab ? std::string() : has_config ? with_fallback : of_bytes;
}

void check_choice(const baton::TemplateSources& sources) {
  for (const bool has_tools : {false, true}) {
    for (const auto& [name, source] : sources) {
      const auto chosen = baton::choose_template(sources, name, has_tools);
      if (!name.empty()) baton::check(chosen.has_value() && *chosen == name, "a template is not found by its name");
    }
    const auto chosen = baton::choose_template(sources, "", has_tools);
    const std::string_view wanted = has_tools && sources.contains("tool_use") ? "tool_use" : "default";
    baton::check(chosen.has_value() == sources.contains(wanted), "a template is there or is not");
    if (chosen) baton::check(*chosen == wanted, "another template than Transformers takes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const baton::test::FuzzFolder folder;
  std::string_view rest = baton::test::fuzz_text(data, size);
  bool has_config = false, has_vocab = false;
  for (const std::string_view name : {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json", "config.json",
                                      "vocab.json", "merges.txt", "added_tokens.json"}) {
    const std::string_view part = baton::test::take_part(rest);
    folder.write_or_remove(name, part);
    if (name == "config.json") has_config = !part.empty();
    if (name == "vocab.json") has_vocab = !part.empty();
  }
  folder.write_or_remove("tokenizer.json", tokenizer_json(has_config, has_vocab));
  const auto tokenizer = baton::Tokenizer::load(folder.path());
  if (!tokenizer) {
    baton::check(!tokenizer.error().message.empty(), "an error without words");
    return 0;
  }
  check_choice(tokenizer->chat_templates());
  for (const auto& end : {tokenizer->bos(), tokenizer->eos()})
    if (end) baton::check(tokenizer->contains(*end), "an end that is not a token");
  const std::vector<baton::TokenId> ids = tokenizer->encode("the tool<|end|>\xc3\xa9 s", /*add_special_tokens=*/true);
  for (const baton::TokenId id : ids) baton::check(tokenizer->contains(id), "an id without a token");
  return 0;
}
