/// What config.json and generation_config.json say about a model, read field by field and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/ids.h"
#include "core/result.h"

namespace baton {

/// How the rotation frequencies of RoPE are changed for contexts longer than those trained on.
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;                       ///< linear, llama3: frequencies are divided by it
  double low_freq_factor = 1;              ///< llama3
  double high_freq_factor = 4;             ///< llama3; larger than low_freq_factor
  std::int32_t original_max_position = 0;  ///< llama3: the context length trained on, in tokens
};

/// A decoder's shape and numbers. All sizes are positive and small enough that their products fit 63 bits; n_heads is a
/// multiple of n_kv_heads; head_dim is even.
struct ModelConfig {
  std::string architecture;  ///< a name of the table in architectures.h
  std::int32_t n_layers = 0;
  std::int32_t d_model = 0;
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t d_ff = 0;
  std::int32_t n_vocab = 0;
  std::int32_t max_position = 0;  ///< positions the model was trained for, in tokens
  float rms_norm_eps = 1e-6f;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tie_embeddings = false;  ///< the output layer's matrix is the embedding table
  DType dtype = DType::f32;     ///< of the checkpoint, as the file says it; f32 where it does not
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  ///< each in [0, n_vocab)

  std::int64_t n_parameters() const;
};

/// Sampling defaults that a model ships; nullopt where its file says nothing.
struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int32_t> top_k;  ///< 0 and -1: off
  std::optional<double> repetition_penalty;
  std::vector<TokenId> eos_token_ids;  ///< in addition to ModelConfig's; each >= 0
};

/// Reads FOLDER/config.json in the spellings of Transformers 4 and 5. Fields that are unknown are ignored. Errors name the
/// file, the field, its value and what is accepted: not_found, invalid_data (missing, wrong type, absurd), unsupported (a value
/// known to change the arithmetic in a way that Baton does not compute).
Result<ModelConfig> read_model_config(const std::filesystem::path& folder);
/// The same from the text of a config.json that errors call `what`.
Result<ModelConfig> parse_model_config(std::string_view text, std::string_view what);

/// Reads FOLDER/generation_config.json; without that file nothing is set.
Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder);
Result<GenerationConfig> parse_generation_config(std::string_view text, std::string_view what);

}  // namespace baton
