/// Fields of a config.json that several families have, read in the spellings of Transformers 4 and 5 and checked.
/// Errors name the field, its value and the accepted values: invalid_data (missing, wrong type, out of range),
/// unsupported (a value that would change the arithmetic in a way that Baton does not compute).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/result.h"
#include "io/json.h"
#include "model/rope_fields.h"
#include "model/spec.h"

namespace baton::fields {

/// Larger sizes are treated as a damaged file: no model is close to them, and a product of them fits 63 bits.
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxWidth = 1 << 17;  // d_model, n_heads * head_dim
inline constexpr std::int64_t kMaxFeedForward = 1 << 20;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxHeadDim = 1024;
inline constexpr std::int64_t kMaxVocab = 1 << 22;
inline constexpr std::int64_t kMaxPositions = 1 << 24;

template <class... Args>
tl::unexpected<Error> bad_value(std::string_view key, fmt::format_string<Args...> message, Args&&... args) {
  return fail(ErrorCode::invalid_data, fmt::format(message, std::forward<Args>(args)...), std::string(key));
}
tl::unexpected<Error> unsupported(std::string_view key, const json::Value& value, std::string_view supported);

/// A size from 1 to `most`; `fallback` if the field is absent or null.
Result<std::int32_t> optional_size(const json::Value& root, std::string_view key, std::int64_t most, std::int64_t fallback);
Result<std::int32_t> required_size(const json::Value& root, std::string_view key, std::int64_t most);
/// A number in [least, most]; `fallback` if the field is absent or null.
Result<double> optional_number(const json::Value& root, std::string_view key, double least, double most, double fallback);
/// True or false; `fallback` if the field is absent or null.
Result<bool> optional_flag(const json::Value& root, std::string_view key, bool fallback);
/// Token ids, written as one number, a list or null; each in [0, n_vocab).
Result<std::vector<TokenId>> token_ids(const json::Value& root, std::string_view key, std::int64_t n_vocab);

/// Refuses a field that is present, not null and not `expected`.
Result<void> expect(const json::Value& root, std::string_view key, const json::Value& expected);
Result<void> expect_null(const json::Value& root, std::string_view key);
/// Refuses encoders and cross attention.
Result<void> expect_decoder(const json::Value& root);

/// A size as optional_size reads it with the fallback `default_size`, or required_size if that is 0.
Result<std::int32_t> size_or_default(const json::Value& root, std::string_view key, std::int64_t most,
                                     std::int32_t default_size);

/// Refuses an activation that `key` names and that is not SiLU, under whichever of Transformers' names.
Result<void> expect_silu(const json::Value& root, std::string_view key);
/// gelu or gelu_tanh: the activation that `key` names, under any of Transformers' names; `fallback` if the field is absent or
/// null.
Result<FeedForwardSpec::Kind> read_gelu(const json::Value& root, std::string_view key, FeedForwardSpec::Kind fallback);

/// What a family's fields mean if they are absent, as in Transformers.
struct Defaults {
  std::int32_t n_vocab = 0;  ///< 0: required, as the next four
  std::int32_t d_model = 0;
  std::int32_t n_layers = 0;
  std::int32_t d_ff = 0;
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;  ///< 0: as many as query heads
  std::int32_t head_dim = 0;    ///< 0: d_model / n_heads
  std::int32_t max_position = 2048;
  double epsilon = 1e-6;
  bool tie_embeddings = false;
  RopeContext rope = {};  ///< its head_dim and max_position do not count
};

/// Reads n_vocab, d_model, max_position, tie_embeddings, dtype and the special tokens of `spec`.
Result<void> read_model_fields(const json::Value& root, const Defaults& defaults, ModelSpec& spec);
/// Reads n_heads, n_kv_heads and head_dim of `attention`.
Result<void> read_heads(const json::Value& root, const Defaults& defaults, std::int32_t d_model, AttentionSpec& attention);

/// `sliding_window` in tokens: 0 if it is null, `fallback` if it is absent.
Result<std::int32_t> read_window(const json::Value& root, std::int32_t fallback);
/// The same where the config has `use_sliding_window`: 0, whatever `sliding_window` is, unless that is true.
Result<std::int32_t> read_used_window(const json::Value& root, std::int32_t fallback);
/// Gives the sliding layers of `spec` the window `window`, which may be 0 if no layer slides. `layer_types` says which
/// layers slide; if it is absent, `is_sliding` says it of a layer's index.
Result<void> read_windows(const json::Value& root, std::int32_t window, const std::function<bool(std::size_t)>& is_sliding,
                          ModelSpec& spec);

}  // namespace baton::fields
