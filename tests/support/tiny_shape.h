/// A folder with the configuration of a model of two layers with wide keys, for tests of benchmarks.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace baton::test {

/// 2 layers of 4 heads and 4 KV heads of size 64, a vocabulary of 160, 2048 positions, float32. The destructor removes
/// the folder.
class TinyShape {
 public:
  /// `name` must differ between test programs, which may run at once.
  explicit TinyShape(const std::string& name) : folder_(std::filesystem::path(::testing::TempDir()) / ("baton_" + name)) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 160,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64,
      "num_key_value_heads": 4, "max_position_embeddings": 2048, "torch_dtype": "float32"})";
  }
  ~TinyShape() { std::filesystem::remove_all(folder_); }
  TinyShape(const TinyShape&) = delete;
  TinyShape& operator=(const TinyShape&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace baton::test
