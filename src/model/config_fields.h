/// Fields of a config.json that several families have, read in the spellings of Transformers 4 and 5 and checked.
/// Errors name the field, its value and the accepted values: invalid_data (missing, wrong type, out of range),
/// unsupported (a value that would change the arithmetic in a way that Baton does not compute).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"
#include "model/spec.h"

namespace baton::fields {

/// Larger sizes are treated as a damaged file: no model is close to them, and their products fit 63 bits.
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxWidth = 1 << 17;  // d_model, n_heads * head_dim
inline constexpr std::int64_t kMaxFeedForward = 1 << 20;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxHeadDim = 1024;
inline constexpr std::int64_t kMaxVocab = 1 << 22;
inline constexpr std::int64_t kMaxPositions = 1 << 24;

tl::unexpected<Error> bad_value(std::string_view key, std::string message);
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
/// Refuses encoders, cross attention and quantised weights.
Result<void> expect_decoder(const json::Value& root);

/// Reads n_vocab, d_model, max_position, tie_embeddings, dtype and the special tokens of `spec`.
Result<void> read_model_fields(const json::Value& root, ModelSpec& spec);
/// Reads n_heads, n_kv_heads and head_dim of `attention`.
Result<void> read_heads(const json::Value& root, std::int32_t d_model, AttentionSpec& attention);

}  // namespace baton::fields
