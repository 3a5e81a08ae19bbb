/// A checkpoint of tests/goldens/quantised whose tensors and configuration a test changes before it is loaded.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/check.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/source/safetensors.h"
#include "model/weights.h"
#include "support/checkpoint_writer.h"
#include "support/recording_backend.h"
#include "support/source_folder.h"

namespace baton::test {

inline std::filesystem::path quantised(const std::string& name) { return source_folder() / "tests/goldens/quantised" / name; }

class ChangedCheckpoint {
 public:
  ChangedCheckpoint() { std::filesystem::create_directories(folder_); }
  ChangedCheckpoint(const ChangedCheckpoint&) = delete;
  ChangedCheckpoint& operator=(const ChangedCheckpoint&) = delete;
  ~ChangedCheckpoint() { std::filesystem::remove_all(folder_); }

  /// Takes the golden `name` as it is.
  void read(const std::string& name) {
    config = json::parse_file(quantised(name) / "config.json").value();
    const std::string text = read_file(quantised(name) / "model.safetensors").value();
    tensors.clear();
    const auto stored_tensors = parse_safetensors(std::as_bytes(std::span(text)), "the test").value();
    for (const auto& [tensor, stored] : stored_tensors)
      tensors.push_back({tensor, stored.dtype, stored.shape,
                         std::string(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size())});
  }

  /// The first tensor whose name has this end.
  TensorToWrite& tensor(std::string_view end) {
    const auto found = std::ranges::find_if(tensors, [&](const TensorToWrite& tensor) { return tensor.name.ends_with(end); });
    check(found != tensors.end(), "no such tensor");
    return *found;
  }
  void remove(std::string_view end) {
    std::erase_if(tensors, [&](const TensorToWrite& tensor) { return tensor.name.ends_with(end); });
  }
  json::Value& quantization() { return config["quantization_config"]; }

  const std::filesystem::path& folder() const { return folder_; }
  /// Writes another file beside the weights.
  void write(const std::string& name, std::string_view text) const {
    check(write_file(folder_ / name, text).has_value(), "write");
  }

  Result<ModelWeights> load(ModelRank rank = {}) const {
    BATON_TRY_VOID(write_file(folder_ / "config.json", json::dump(config)));
    BATON_TRY_VOID(write_file(folder_ / "model.safetensors", safetensors_file(tensors)));
    BATON_TRY(ModelSpec spec, read_model_spec(folder_));
    BATON_TRY(const Checkpoint checkpoint, Checkpoint::open(folder_));
    BATON_TRY_VOID(fit_to_checkpoint(spec, checkpoint));
    RankBackend backend(rank);
    return load_weights(spec, checkpoint, backend, DType::f32, 1);
  }
  std::string error() const {
    const auto weights = load();
    return weights ? "no error" : weights.error().message;
  }

  json::Value config;
  std::vector<TensorToWrite> tensors;

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("baton_changed_checkpoint_" + std::to_string(getpid()));
};

}  // namespace baton::test
