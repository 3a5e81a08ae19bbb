/// Fuzzes the files beside a tokenizer: any bytes as tokenizer_config.json, special_tokens_map.json and
/// chat_template.json give an error or a tokenizer, and each of its chat templates can be chosen by its name. The input
/// is the three files with "\n--\n" between them; an empty one does not exist.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "io/json.h"
#include "support/fuzz_parts.h"
#include "support/tokenizer_files.h"
#include "text/tokenizer.h"

namespace {

struct ModelFolder : baton::test::FuzzFolder {
  ModelFolder() { write("tokenizer.json", baton::json::dump(baton::test::byte_level_tokenizer())); }
};

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
  static const ModelFolder folder;
  std::string_view rest = baton::test::fuzz_text(data, size);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json"})
    folder.write_or_remove(name, baton::test::take_part(rest));
  const auto tokenizer = baton::Tokenizer::load(folder.path());
  if (!tokenizer) {
    baton::check(!tokenizer.error().message.empty(), "an error without words");
    return 0;
  }
  check_choice(tokenizer->chat_templates());
  for (const auto& end : {tokenizer->bos(), tokenizer->eos()})
    if (end) baton::check(tokenizer->contains(*end), "an end that is no token");
  const std::vector<baton::TokenId> ids = tokenizer->encode("the tool<|end|>\xc3\xa9 s", /*add_special_tokens=*/true);
  for (const baton::TokenId id : ids) baton::check(tokenizer->contains(id), "an id without a token");
  return 0;
}
