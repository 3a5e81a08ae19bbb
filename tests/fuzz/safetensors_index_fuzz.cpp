/// Fuzzes checkpoints of several files: any bytes as model.safetensors.index.json and as two shards give an error
/// message, or tensors inside these shards. The input is the index, then the shards, each after the bytes "\n--\n".
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "io/safetensors.h"
#include "support/checkpoint_writer.h"
#include "support/fuzz_parts.h"

namespace {

/// The model's folder, and beside it a file that no index may reach.
struct ModelFolder {
  ModelFolder() {
    parent.write("outside.safetensors", baton::test::safetensors_file({baton::test::f32_tensor("outside", {1}, {1.0f})}));
    std::filesystem::create_directory(path());
  }
  std::filesystem::path path() const { return parent.path() / "model"; }

  baton::test::FuzzFolder parent;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelFolder folder;
  std::string_view rest = baton::test::fuzz_text(data, size);
  std::size_t n_shard_bytes = 0;
  for (const char* name : {"model.safetensors.index.json", "a.safetensors", "b.safetensors"}) {
    const std::string_view part = baton::test::take_part(rest);
    folder.parent.write(std::filesystem::path("model") / name, part);
    if (std::string_view(name).ends_with(".safetensors")) n_shard_bytes += part.size();
  }
  const auto checkpoint = baton::Checkpoint::open(folder.path());
  if (!checkpoint) {
    baton::check(!checkpoint.error().message.empty(), "an error without words");
    return 0;
  }
  baton::check(!checkpoint->contains("outside"), "a tensor of a file outside of the folder");
  baton::check(checkpoint->total_bytes() <= n_shard_bytes, "more bytes than the shards have");
  for (const std::string& name : checkpoint->names()) {
    const auto tensor = checkpoint->load(name);
    if (!tensor) {
      baton::check(!tensor.error().message.empty(), "an error without words");
      continue;
    }
    const std::span bytes(tensor->data, tensor->size_bytes());
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());  // a read outside the file fails
    baton::check(std::ranges::equal(copy, bytes), "a tensor changes while it is read");
    baton::check(checkpoint->load(name, tensor->shape).has_value(), "a tensor has another shape than its own");
  }
  return 0;
}
