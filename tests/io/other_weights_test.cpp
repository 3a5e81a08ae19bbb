/// Weights in other formats are named (io/other_weights.h).
#include "io/other_weights.h"

#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(OtherWeights, are_named_by_the_format_that_they_have) {
  const std::vector<std::pair<std::set<std::string>, std::string>> cases{
      {{"pytorch_model.bin", "config.json"}, "pytorch_model.bin is a pickle of PyTorch"},
      {{"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"},
       "pytorch_model-00001-of-00002.bin (1 more beside it) is a pickle of PyTorch"},
      {{"model.pt"}, "model.pt is a pickle of PyTorch"},
      {{"original/consolidated.00.pth", "params.json"}, "original/consolidated.00.pth is a pickle of PyTorch"},
      {{"tiny.Q4_K_M.gguf", "tiny.Q8_0.gguf", "README.md"}, "tiny.Q4_K_M.gguf (1 more beside it) is GGUF, llama.cpp's format"},
      {{"model.gguf", "training_args.bin"}, "model.gguf is GGUF"},
      {{"tf_model.h5"}, "tf_model.h5 is TensorFlow's format"},
      {{"flax_model.msgpack"}, "flax_model.msgpack is Flax's format"},
      {{"adapter_model.safetensors", "adapter_config.json"}, "adapter_model.safetensors is an adapter (LoRA)"},
      {{"consolidated.safetensors", "params.json"}, "consolidated.safetensors is Mistral's own layout"},
  };
  for (const auto& [names, begin] : cases) EXPECT_TRUE(other_weights(names).starts_with(begin)) << other_weights(names);
  EXPECT_EQ(other_weights({"model.bin"}),
            "model.bin is a pickle of PyTorch, and Baton reads model.safetensors or shards with an index: Transformers' "
            "save_pretrained writes a model as safetensors");
}

TEST(OtherWeights, are_not_looked_for_beside_weights_and_are_nothing_else) {
  for (const std::set<std::string>& names : {std::set<std::string>{"model.safetensors", "pytorch_model.bin"},
                                             {"model.safetensors.index.json", "model.gguf"},
                                             {"config.json", "tokenizer.json"},
                                             {"training_args.bin", "optimizer.pt", "rng_state_0.pth", "global/scheduler.pt"},
                                             {}})
    EXPECT_EQ(other_weights(names), "");
}

TEST(OtherWeights, are_found_in_a_folder) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_other_weights_test";
  fs::create_directories(folder);
  EXPECT_EQ(other_weights_in(folder), "");
  std::ofstream(folder / "a.gguf") << "GGUF";
  EXPECT_TRUE(other_weights_in(folder).starts_with("a.gguf is GGUF"));
  EXPECT_EQ(other_weights_in(folder / "absent"), "");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace baton
