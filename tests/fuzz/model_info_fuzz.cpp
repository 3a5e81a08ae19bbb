/// Fuzzes what `baton info` reads of a model's folder: any bytes as its files give an error, or sizes that agree with
/// each other. The input is config.json, generation_config.json, tokenizer.json, model.safetensors.index.json and two
/// shards with "\n--\n" between them; an empty one does not exist. Without an index the first shard is the only file.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/log.h"
#include "load/model_info.h"
#include "support/fuzz_parts.h"

namespace {

void check_sizes(const baton::ModelInfo& info) {
  baton::check(!info.groups.empty() && info.weights.held > 0 && info.spec.n_parameters() > 0, "a model of no size");
  std::int32_t n_layers = 0;
  for (const baton::KvGroup& group : info.groups) {
    n_layers += group.n_layers;
    baton::check(group.bytes_per_token > 0 && group.window >= 0, "layers that keep nothing");
  }
  baton::check(n_layers == static_cast<std::int32_t>(info.spec.layers.size()), "a layer in no group");
  std::int64_t last = 0;
  for (const std::int64_t len : {std::int64_t{1}, std::int64_t{2}, std::int64_t{info.spec.max_position}}) {
    const std::int64_t bytes = baton::context_bytes(info.groups, len);
    baton::check(bytes > 0 && (bytes >= last || info.spec.max_position < 2), "a longer context keeps less");
    last = bytes;
  }
  for (const std::int32_t own_len : {1, 256, 1 << 20}) {
    const baton::SharingBytes bytes =
        baton::sharing_bytes(info.groups, {.n_requests = 64, .shared_len = 2048, .own_len = own_len});
    baton::check(bytes.shared > 0 && bytes.shared <= bytes.apart, "sharing keeps more");
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  baton::log::set_level(baton::log::Level::error);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const baton::test::FuzzFolder folder;
  std::string_view rest = baton::test::fuzz_text(data, size);
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json"})
    folder.write_or_remove(name, baton::test::take_part(rest));
  const std::string_view index = baton::test::take_part(rest);
  const std::string_view first = baton::test::take_part(rest), second = baton::test::take_part(rest);
  folder.write_or_remove("model.safetensors.index.json", index);
  folder.write_or_remove("model.safetensors", index.empty() ? first : "");
  folder.write_or_remove("a.safetensors", index.empty() ? "" : first);
  folder.write_or_remove("b.safetensors", second);
  const auto info = baton::read_model_info(folder.path(), {});
  if (!info) {
    baton::check(!info.error().message.empty(), "an error without words");
    return 0;
  }
  check_sizes(*info);
  std::int64_t stored = 0;
  for (const auto& [dtype, bytes] : info->stored_bytes) stored += bytes;
  baton::check(stored <= static_cast<std::int64_t>(first.size() + second.size()), "more bytes than the shards have");
  baton::check(info->n_tokens >= 0 && (info->tokenizer_fault.empty() || info->n_tokens == 0), "tokens without a tokenizer");
  return 0;
}
