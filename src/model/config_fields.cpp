/// Reads the fields declared in config_fields.h.
#include "model/config_fields.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace baton::fields {
namespace {

using json::Value;

/// Nothing where none is stated, or "auto": the weights' own.
Result<std::optional<DType>> read_dtype(const Value& root) {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {  // Transformers 5, 4
    BATON_TRY(const auto name, json::get_optional<std::string>(root, key));
    if (!name || *name == "auto") continue;
    const auto dtype = dtype_from_name(*name);
    if (!dtype || *dtype == DType::f8_e4m3) return unsupported(key, *name, "\"float32\", \"bfloat16\" or \"float16\"");
    return dtype;
  }
  return std::nullopt;
}

}  // namespace

tl::unexpected<Error> unsupported(std::string_view key, const Value& value, std::string_view supported) {
  std::string found = json::dump(value);
  if (found.size() > 80) found = found.substr(0, 80) + "...";
  return fail(ErrorCode::unsupported, fmt::format("'{}' is {}, which is not supported; supported is {}", key, found, supported),
              std::string(key));
}

Result<std::int32_t> optional_size(const Value& root, std::string_view key, std::int64_t most, std::int64_t fallback) {
  BATON_TRY(const auto found, json::get_optional<std::int64_t>(root, key));
  const std::int64_t size = found.value_or(fallback);
  if (size < 1 || size > most) return bad_value(key, "'{}' must be from 1 to {}, not {}", key, most, size);
  return static_cast<std::int32_t>(size);
}

Result<std::int32_t> required_size(const Value& root, std::string_view key, std::int64_t most) {
  if (json::find(root, key) == nullptr) return json::missing(key);
  BATON_TRY(const auto present, json::get<std::int64_t>(root, key));
  return optional_size(root, key, most, present);
}

Result<std::int32_t> size_or_default(const Value& root, std::string_view key, std::int64_t most, std::int32_t default_size) {
  if (default_size == 0) return required_size(root, key, most);
  return optional_size(root, key, most, default_size);
}

Result<double> optional_number(const Value& root, std::string_view key, double least, double most, double fallback) {
  BATON_TRY(const auto found, json::get_optional<double>(root, key));
  const double number = found.value_or(fallback);
  if (!(number >= least && number <= most))
    return bad_value(key, "'{}' must be from {} to {}, not {}", key, least, most, number);
  return number;
}

Result<bool> optional_flag(const Value& root, std::string_view key, bool fallback) {
  BATON_TRY(const auto found, json::get_optional<bool>(root, key));
  return found.value_or(fallback);
}

Result<std::vector<TokenId>> token_ids(const Value& root, std::string_view key, std::int64_t n_vocab) {
  const Value* value = json::find(root, key);
  std::vector<TokenId> ids;
  if (value == nullptr || value->is_null()) return ids;
  if (value->is_array()) {
    BATON_TRY(ids, json::convert<std::vector<TokenId>>(*value, key));
  } else {
    BATON_TRY(const TokenId id, json::convert<TokenId>(*value, key));
    ids.push_back(id);
  }
  std::erase(ids, -1);  // older configurations write it for "none"
  for (const TokenId id : ids)
    if (id < 0 || id >= n_vocab) return bad_value(key, "'{}' must be token ids from 0 to {}, not {}", key, n_vocab - 1, id);
  return ids;
}

Result<void> expect(const Value& root, std::string_view key, const Value& expected) {
  const Value* found = json::find(root, key);
  if (found != nullptr && !found->is_null() && *found != expected) return unsupported(key, *found, json::dump(expected));
  return {};
}

Result<void> expect_null(const Value& root, std::string_view key) {
  const Value* found = json::find(root, key);
  if (found != nullptr && !found->is_null()) return unsupported(key, *found, "null");
  return {};
}

Result<void> expect_decoder(const Value& root) {
  BATON_TRY_VOID(expect(root, "is_encoder_decoder", false));
  return expect(root, "add_cross_attention", false);
}

namespace {

/// The names that Transformers' ACT2FN has for one function: they differ in how it is computed, not in its formula.
constexpr std::string_view kSilu[] = {"silu", "swish"};
constexpr std::string_view kGelu[] = {"gelu", "gelu_python"};
constexpr std::string_view kGeluTanh[] = {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// "a", "b" or "c".
std::string listed(std::vector<std::string_view> names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list += fmt::format(R"({}"{}")", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return list;
}

}  // namespace

Result<void> expect_silu(const Value& root, std::string_view key) {
  BATON_TRY(const auto name, json::get_optional<std::string>(root, key));
  if (!name || is_one_of(kSilu, *name)) return {};
  return unsupported(key, *name, listed({std::begin(kSilu), std::end(kSilu)}));
}

Result<FeedForwardSpec::Kind> read_gelu(const Value& root, std::string_view key, FeedForwardSpec::Kind fallback) {
  BATON_TRY(const auto name, json::get_optional<std::string>(root, key));
  if (!name) return fallback;
  if (is_one_of(kGelu, *name)) return FeedForwardSpec::Kind::gelu;
  if (is_one_of(kGeluTanh, *name)) return FeedForwardSpec::Kind::gelu_tanh;
  std::vector<std::string_view> names(std::begin(kGelu), std::end(kGelu));
  names.insert(names.end(), std::begin(kGeluTanh), std::end(kGeluTanh));
  return unsupported(key, *name, listed(std::move(names)));
}

Result<void> read_model_fields(const Value& root, const Defaults& defaults, ModelSpec& spec) {
  BATON_TRY(spec.d_model, size_or_default(root, "hidden_size", kMaxWidth, defaults.d_model));
  BATON_TRY(spec.n_vocab, size_or_default(root, "vocab_size", kMaxVocab, defaults.n_vocab));
  BATON_TRY(spec.max_position, optional_size(root, "max_position_embeddings", kMaxPositions, defaults.max_position));
  BATON_TRY(spec.tie_embeddings, optional_flag(root, "tie_word_embeddings", defaults.tie_embeddings));
  BATON_TRY(const std::optional<DType> dtype, read_dtype(root));
  spec.states_dtype = dtype.has_value();
  spec.dtype = dtype.value_or(DType::f32);
  BATON_TRY(const auto bos, token_ids(root, "bos_token_id", spec.n_vocab));
  if (!bos.empty()) spec.bos_token_id = bos.front();
  BATON_TRY(spec.eos_token_ids, token_ids(root, "eos_token_id", spec.n_vocab));
  return {};
}

Result<void> read_heads(const Value& root, const Defaults& defaults, std::int32_t d_model, AttentionSpec& attention) {
  BATON_TRY(attention.n_heads, size_or_default(root, "num_attention_heads", kMaxHeads, defaults.n_heads));
  const bool is_absent = json::find(root, "num_key_value_heads") == nullptr;
  const std::int32_t n_kv_heads = is_absent && defaults.n_kv_heads > 0 ? defaults.n_kv_heads : attention.n_heads;
  BATON_TRY(attention.n_kv_heads, optional_size(root, "num_key_value_heads", kMaxHeads, n_kv_heads));
  if (attention.n_heads % attention.n_kv_heads != 0)
    return bad_value("num_key_value_heads",
                     "'num_attention_heads' must be a multiple of 'num_key_value_heads', but they are {} and {}",
                     attention.n_heads, attention.n_kv_heads);
  // null is no default: Transformers divides the width then.
  const Value* found = json::find(root, "head_dim");
  const std::int32_t usual = found == nullptr ? defaults.head_dim : 0;
  const bool has_head_dim = (found != nullptr && !found->is_null()) || usual > 0;
  if (!has_head_dim && d_model % attention.n_heads != 0)
    return bad_value("hidden_size",
                     "'hidden_size' must be a multiple of 'num_attention_heads' where there is no 'head_dim', "
                     "but they are {} and {}",
                     d_model, attention.n_heads);
  const std::int32_t head_dim = usual > 0 ? usual : d_model / attention.n_heads;
  BATON_TRY(attention.head_dim, optional_size(root, "head_dim", kMaxHeadDim, head_dim));
  if (attention.head_dim % 2 != 0) return bad_value("head_dim", "'head_dim' must be even, not {}", attention.head_dim);
  if (const std::int64_t width = std::int64_t{attention.n_heads} * attention.head_dim; width > kMaxWidth)
    return bad_value("num_attention_heads", "'num_attention_heads' * 'head_dim' must be at most {}, not {}", kMaxWidth, width);
  return {};
}

Result<std::int32_t> read_window(const Value& root, std::int32_t fallback) {
  const Value* found = json::find(root, "sliding_window");
  if (found == nullptr) return fallback;
  if (found->is_null()) return 0;
  return required_size(root, "sliding_window", kMaxPositions);
}

Result<std::int32_t> read_used_window(const Value& root, std::int32_t fallback) {
  BATON_TRY(const bool is_used, optional_flag(root, "use_sliding_window", false));
  return is_used ? read_window(root, fallback) : 0;
}

Result<void> read_windows(const Value& root, std::int32_t window, const std::function<bool(std::size_t)>& is_sliding,
                          ModelSpec& spec) {
  BATON_TRY(const auto types, json::get_optional<std::vector<std::string>>(root, "layer_types"));
  if (types && types->size() != spec.layers.size())
    return bad_value("layer_types", "'layer_types' must name the types of {} layers, not of {}", spec.layers.size(),
                     types->size());
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (types && (*types)[i] != "sliding_attention" && (*types)[i] != "full_attention")
      return unsupported("layer_types", (*types)[i], "\"full_attention\" or \"sliding_attention\"");
    if (!(types ? (*types)[i] == "sliding_attention" : is_sliding(i))) continue;
    if (window == 0) return json::missing("sliding_window");
    spec.layers[i].attention.window = window;
  }
  return {};
}

}  // namespace baton::fields
