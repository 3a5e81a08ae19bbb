/// A tiny model with a layer for drafts: with random weights, or with weights that make every draft right.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/config.h"
#include "model/source/mtp.h"
#include "model/weights.h"
#include "support/checkpoint_writer.h"
#include "support/test_ranks.h"
#include "support/tiny_engine.h"

namespace baton::testing {

/// One dense layer, one with experts, and one of these for drafts.
inline ModelSpec mtp_spec(std::int32_t d_model = 48) {
  auto spec = parse_model_spec(R"({"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 80, "moe_intermediate_size": 32, "n_routed_experts": 4,
      "num_experts_per_tok": 2, "vocab_size": 160, "max_position_embeddings": 2048, "eos_token_id": 2, "tie_word_embeddings": false,
      "hidden_size": )" + std::to_string(d_model) +
                                   "}",
                               "the model that drafts");
  EXPECT_TRUE(spec) << spec.error().message;
  EXPECT_TRUE(use_mtp(*spec, nullptr));
  return std::move(*spec);
}

/// Recurrent layers, one with attention, and one of these for drafts.
inline ModelSpec recurrent_mtp_spec() {
  ModelSpec spec = recurrent_spec();
  EXPECT_TRUE(use_mtp(spec, nullptr));
  return spec;
}

/// The token that the model of ForeseeingModel generates after `token`.
inline TokenId token_after(TokenId token) { return token < 3 ? 3 : 3 + (token - 3 + 60) % 157; }

/// A model whose layers add nothing, so that a token's embedding alone decides the next one (token_after), and whose layer for
/// drafts knows this rule, too.
class ForeseeingModel {
 public:
  enum class Reads { token, hidden_state };  ///< what the layer for drafts reads: the other half of its projection is 0

  explicit ForeseeingModel(Reads reads) : folder_(std::filesystem::path(::testing::TempDir()) / name_of(reads)) {
    std::filesystem::create_directories(folder_);
    std::vector<test::TensorToWrite> tensors;
    for (const ExpectedTensor& tensor : expected_tensors(spec_)) {
      std::vector<std::int64_t> shape;
      for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
      tensors.push_back(test::f32_tensor(tensor.name, shape, values_of(tensor, reads)));
    }
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << test::safetensors_file(tensors);
    auto opened = Checkpoint::open(folder_);
    EXPECT_TRUE(opened) << opened.error().message;
    checkpoint_.emplace(std::move(*opened));
  }
  ~ForeseeingModel() { std::filesystem::remove_all(folder_); }

  const ModelSpec& spec() const { return spec_; }
  MakeRankModel make() const { return checkpoint_model(spec_, *checkpoint_); }

 private:
  static std::string name_of(Reads reads) {
    return "baton_foreseeing_" + std::to_string(::getpid()) + (reads == Reads::token ? "_token" : "_hidden");
  }

  /// Embeddings are unit vectors, one for each token.
  static std::vector<float> values_of(const ExpectedTensor& tensor, Reads reads) {
    const auto n_rows = static_cast<std::size_t>(tensor.shape[0]);
    const auto n_columns = tensor.shape.rank() == 2 ? static_cast<std::size_t>(tensor.shape[1]) : 1;
    std::vector<float> values(n_rows * n_columns, 0.0F);
    const auto set = [&](std::size_t row, std::size_t column) { values[row * n_columns + column] = 1; };
    if (tensor.kind == ExpectedTensor::Kind::norm) values.assign(values.size(), 1.0F);
    for (std::size_t t = 0; t < 160; ++t) {
      const auto next = static_cast<std::size_t>(token_after(static_cast<TokenId>(t)));
      if (tensor.name == "model.embed_tokens.weight") set(t, t);
      if (tensor.name == "lm_head.weight") set(next, t);
      if (!tensor.name.ends_with("eh_proj.weight")) continue;
      if (reads == Reads::token)
        set(t, t);
      else
        set(next, n_columns / 2 + t);
    }
    return values;
  }

  ModelSpec spec_ = mtp_spec(192);
  std::filesystem::path folder_;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace baton::testing
