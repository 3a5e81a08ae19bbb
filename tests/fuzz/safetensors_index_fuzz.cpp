/// Fuzzes checkpoints of several files: any bytes as model.safetensors.index.json and as two shards give an error
/// message, or tensors inside these shards. The input is the index, then the shards, each after the bytes "\n--\n".
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "io/safetensors.h"

namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, std::string_view bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// A safetensors file with one tensor of four bytes.
std::string one_tensor(const std::string& name) {
  const std::string header = R"({")" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + "abcd";
}

/// The model's folder, and beside it a file that no index may reach. Both exist until the process ends.
class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = (fs::temp_directory_path() / "baton_index_fuzz_XXXXXX").string();
    baton::check(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    parent_ = pattern;
    write(parent_ / "outside.safetensors", one_tensor("outside"));
    fs::create_directory(path());
  }
  ~ModelFolder() { fs::remove_all(parent_); }
  fs::path path() const { return parent_ / "model"; }

 private:
  fs::path parent_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelFolder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::size_t n_shard_bytes = 0;
  for (const char* name : {"model.safetensors.index.json", "a.safetensors", "b.safetensors"}) {
    constexpr std::string_view kEnd = "\n--\n";
    const std::size_t end = std::min(rest.find(kEnd), rest.size());
    write(folder.path() / name, rest.substr(0, end));
    if (std::string_view(name).ends_with(".safetensors")) n_shard_bytes += end;
    rest.remove_prefix(std::min(end + kEnd.size(), rest.size()));
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
