/// Fuzzes the sources of prefixes: bodies of /v1/prefixes and the files of --prefix and --prefix-folder. Any bytes
/// give an error message, or a definition that has exactly one kind of content, and a name and a lifetime within the
/// limits.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/log.h"
#include "server/limits/prefix_name.h"
#include "server/prefixes/prefix_definition.h"

namespace {

void check_definition(const baton::PrefixDefinition& definition) {
  baton::check(baton::is_prefix_name(definition.name), "a name that is none");
  baton::check(definition.version.empty() || baton::is_prefix_name(definition.version), "a version that is none");
  baton::check(!definition.ttl || definition.ttl->count() >= 1, "a lifetime that has ended");
  baton::check(definition.messages.is_null() != definition.tokens.empty(), "messages and tokens, or neither");
  for (const baton::TokenId id : definition.tokens) baton::check(id >= 0, "a token with a negative id");
  if (definition.messages.is_null()) return;
  baton::check(definition.messages.is_array() && !definition.messages.empty(), "messages that are not a list");
  baton::prefix_text(definition.messages);
}

template <class T>
void check_error(const baton::Result<T>& result) {
  baton::check(!result.error().message.empty(), "an error without words");
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  baton::log::set_level(baton::log::Level::error);  // ignored fields are logged one by one
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const char* file : {"shop.json", "shop.txt"}) {
    if (const auto definition = baton::parse_prefix_file("shop", file, bytes)) {
      check_definition(*definition);
      baton::check(definition->name == "shop", "another name than the file's");
    } else {
      check_error(definition);
    }
  }
  if (const auto body = baton::json::parse(bytes, "the body")) {
    if (const auto request = baton::parse_prefix_request(*body)) {
      check_definition(request->definition);
      baton::check(!request->content_field.empty(), "content from nowhere");
    } else {
      check_error(request);
    }
  }
  return 0;
}
