/// Formats of weights by the ends of their names.
#include "io/other_weights.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "io/hub_files.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

struct Format {
  std::string_view end;  ///< of the file's name
  std::string_view what;
  std::string_view advice;
};
constexpr std::string_view kSave = "Transformers' save_pretrained writes a model as safetensors";
/// A file is described by the first row that matches it, a model by the first row that matches one of its files.
constexpr Format kFormats[] = {
    {"adapter_model.safetensors", "an adapter (LoRA)", "merge it into its model, with PEFT's merge_and_unload"},
    {"consolidated.safetensors", "Mistral's own layout", "take the model.safetensors, or the shards with an index, beside it"},
    {".safetensors", "under a name that no model has", "the file is called model.safetensors, or the shards have an index"},
    {".gguf", "GGUF, llama.cpp's format", "take the model in Hugging Face's layout that it was made from"},
    {".bin", "a pickle of PyTorch", kSave},
    {".pt", "a pickle of PyTorch", kSave},
    {".pth", "a pickle of PyTorch", kSave},
    {".ckpt", "a checkpoint of PyTorch", kSave},
    {".h5", "TensorFlow's format", kSave},
    {".msgpack", "Flax's format", kSave},
    {".onnx", "ONNX", "take the model that it was made from"},
    {".npz", "NumPy's format", kSave},
};
/// What training leaves beside the weights.
constexpr std::string_view kNoWeights[] = {"training_args", "optimizer", "scheduler", "rng_state", "random_states"};

bool is_of_training(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  return std::ranges::any_of(kNoWeights, [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace

std::string other_weights(const std::set<std::string>& names) {
  if (names.contains(std::string(hub::kWeights)) || names.contains(std::string(hub::kIndex))) return "";
  for (const Format& format : kFormats) {
    std::vector<std::string_view> found;
    for (const std::string& name : names)
      if (name.ends_with(format.end) && !is_of_training(name)) found.push_back(name);
    if (found.empty()) continue;
    const std::string more = found.size() == 1 ? "" : fmt::format(" ({} more beside it)", found.size() - 1);
    return fmt::format("{}{} is {}, and Baton reads model.safetensors or shards with an index: {}", found.front(), more,
                       format.what, format.advice);
  }
  return "";
}

std::string other_weights_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed))
    names.insert(entry.path().filename().string());
  return other_weights(names);
}

}  // namespace baton
