/// Reads what each way to quantise writes to a config.json.
#include "model/quantization.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "model/config_fields.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kServed =
    "float32, bfloat16 and float16; fp8, fbgemm_fp8, mxfp4 (gpt-oss), compressed-tensors (float-quantized, mxfp8-quantized, "
    "nvfp4-pack-quantized, "
    "mxfp4-pack-quantized, int-quantized and pack-quantized), gptq and awq (gemm) in 8 or 4 bits, and modelopt's FP8, MXFP8, "
    "NVFP4 and W4A16_NVFP4";

constexpr std::int64_t kNvfp4Group = 16;
constexpr std::int64_t kMxfp4Group = 32;

tl::unexpected<Error> refuse(std::string_view what, std::string_view key) {
  return fail(
      ErrorCode::unsupported,
      fmt::format("the weights are quantised with {} ('{}'), which is not supported; supported are {}", what, key, kServed),
      std::string(key));
}

/// Each matrix is compared with each statement: a file must not choose how long that takes.
constexpr std::size_t kMaxStatements = 64;

Result<void> add_statement(QuantizationSpec& spec, const SchemeStatement& statement, std::string_view key) {
  if (std::ranges::find(spec.statements, statement) != spec.statements.end()) return {};
  if (spec.statements.size() == kMaxStatements)
    return fields::bad_value(key, "'{}' states more than {} schemes", key, kMaxStatements);
  spec.statements.push_back(statement);
  return {};
}

Result<WeightScheme> integers_of(std::int64_t bits, std::string_view key) {
  if (bits == 4) return WeightScheme::i4;
  if (bits == 8) return WeightScheme::i8;
  return refuse(fmt::format("integers of {} bits", bits), key);
}

/// Groups along a row; -1: the whole row.
Result<void> read_group(const Value& config, SchemeStatement& statement) {
  BATON_TRY(const auto size, json::get_optional<std::int64_t>(config, "group_size"));
  if (!size || *size == -1) return {};
  if (*size < 1 || *size > fields::kMaxFeedForward)
    return fields::bad_value("group_size", "'group_size' must be -1 or from 1 to {}, not {}", fields::kMaxFeedForward, *size);
  statement.scales = ScaleKind::group;
  statement.columns = *size;
  return {};
}

/// `key`: null, or [rows, columns] of a block.
Result<bool> read_block(const Value& config, std::string_view key, SchemeStatement& statement) {
  const Value* found = json::find(config, key);
  if (found == nullptr || found->is_null()) return false;
  BATON_TRY(const auto sizes, json::convert<std::vector<std::int64_t>>(*found, key));
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1 || sizes[0] > fields::kMaxFeedForward ||
      sizes[1] > fields::kMaxFeedForward)
    return fields::bad_value(key, "'{}' must be the rows and the columns of a block, not {}", key, json::dump(*found));
  statement.scales = ScaleKind::block;
  statement.rows = sizes[0];
  statement.columns = sizes[1];
  return true;
}

Result<QuantizationSpec> read_fp8(const Value& config) {
  SchemeStatement statement{.scheme = WeightScheme::f8, .scales = ScaleKind::tensor};
  BATON_TRY(const auto format, json::get_optional<std::string>(config, "fmt"));
  if (format && *format != "e4m3" && *format != "float8_e4m3fn")
    return fields::unsupported("fmt", *format, R"("e4m3" or "float8_e4m3fn")");
  BATON_TRY_VOID(fields::expect(config, "expert_dtype", "fp8"));
  BATON_TRY(const bool has_blocks, read_block(config, "weight_block_size", statement));
  BATON_TRY(const auto activations, json::get_optional<std::string>(config, "activation_scheme"));
  const bool states_them = activations && (*activations == "dynamic" || *activations == "static");
  return QuantizationSpec{.statements = {statement}, .has_f8_activations = states_them && !has_blocks};
}

/// Keys of `dynamic` are patterns of names: with "-:" for modules that are not quantised, otherwise for modules with fields of
/// their own. The tensors of a module say which it is.
Result<void> read_dynamic(const Value& config, const SchemeStatement& common, QuantizationSpec& spec) {
  const Value* dynamic = json::find(config, "dynamic");
  if (dynamic == nullptr || dynamic->is_null()) return {};
  if (!dynamic->is_object()) return json::wrong_type("dynamic", "an object", *dynamic);
  for (const auto& [pattern, value] : dynamic->items()) {
    if (pattern.starts_with("-:")) continue;
    if (!value.is_object()) return json::wrong_type("dynamic", "an object of objects", value);
    SchemeStatement statement = common;
    BATON_TRY(const auto bits, json::get_optional<std::int64_t>(value, "bits"));
    if (bits) {
      BATON_TRY(statement.scheme, integers_of(*bits, "dynamic"));
    }
    BATON_TRY_VOID(read_group(value, statement));
    BATON_TRY(const bool is_symmetric, fields::optional_flag(value, "sym", common.is_symmetric));
    if (is_symmetric != common.is_symmetric) return refuse("symmetric and asymmetric integers in one file", "dynamic");
    BATON_TRY_VOID(add_statement(spec, statement, "dynamic"));
  }
  return {};
}

Result<QuantizationSpec> read_gptq(const Value& config) {
  QuantizationSpec spec;
  SchemeStatement statement;
  BATON_TRY(const auto bits, json::get<std::int64_t>(config, "bits"));
  BATON_TRY(statement.scheme, integers_of(bits, "bits"));
  BATON_TRY_VOID(read_group(config, statement));
  BATON_TRY(statement.is_symmetric, fields::optional_flag(config, "sym", true));
  BATON_TRY(const auto format, json::get_optional<std::string>(config, "checkpoint_format"));
  if (format && *format != "gptq" && *format != "gptq_v2")
    return refuse(fmt::format("gptq in the format '{}'", *format), "checkpoint_format");
  spec.adds_one_to_zeros = !format || *format == "gptq";
  spec.statements.push_back(statement);
  BATON_TRY_VOID(read_dynamic(config, statement, spec));
  return spec;
}

Result<QuantizationSpec> read_awq(const Value& config) {
  SchemeStatement statement;
  const bool is_old = json::find(config, "bits") == nullptr;
  BATON_TRY(const auto bits, json::get<std::int64_t>(config, is_old ? "w_bit" : "bits"));
  if (bits != 4) return refuse(fmt::format("awq in {} bits", bits), "bits");
  statement.scheme = WeightScheme::i4;
  const Value* old_size = json::find(config, "q_group_size");
  BATON_TRY_VOID(read_group(old_size != nullptr ? Value{{"group_size", *old_size}} : config, statement));
  BATON_TRY(const bool has_zeros, fields::optional_flag(config, "zero_point", true));
  statement.is_symmetric = !has_zeros;
  for (const std::string_view key : {"version", "format"}) {
    BATON_TRY(const auto version, json::get_optional<std::string>(config, key));
    if (version && *version != "gemm" && *version != "GEMM")
      return refuse(fmt::format("awq in the layout '{}'", *version), key);
  }
  return QuantizationSpec{.statements = {statement}};
}

/// NVFP4 and MXFP4 are told apart by the size of their groups.
Result<void> expect_f4_group(const SchemeStatement& statement, std::string_view key) {
  if (statement.scales == ScaleKind::group && (statement.columns == kNvfp4Group || statement.columns == kMxfp4Group)) return {};
  return refuse(statement.scales == ScaleKind::group
                    ? fmt::format("floats of 4 bits with a scale for {} columns", statement.columns)
                    : std::string("floats of 4 bits without groups"),
                key);
}

/// One of the `config_groups` of compressed-tensors.
Result<std::optional<SchemeStatement>> read_group_of_modules(const Value& group) {
  const Value* weights = json::find(group, "weights");
  if (weights == nullptr || weights->is_null()) return std::nullopt;
  SchemeStatement statement;
  BATON_TRY(const auto bits, json::get<std::int64_t>(*weights, "num_bits"));
  BATON_TRY(const auto type, json::get_optional<std::string>(*weights, "type"));
  BATON_TRY(const auto strategy, json::get_optional<std::string>(*weights, "strategy"));
  BATON_TRY(statement.is_symmetric, fields::optional_flag(*weights, "symmetric", true));
  if (type && *type == "float") {
    if ((bits != 8 && bits != 4) || !statement.is_symmetric)
      return refuse(fmt::format("floats of {} bits{}", bits, statement.is_symmetric ? "" : " with zeros"), "config_groups");
    statement.scheme = bits == 8 ? WeightScheme::f8 : WeightScheme::f4;
  } else {
    BATON_TRY(statement.scheme, integers_of(bits, "config_groups"));
  }
  BATON_TRY_VOID(read_group(*weights, statement));
  if (statement.scheme == WeightScheme::f4) {
    BATON_TRY_VOID(expect_f4_group(statement, "config_groups"));
    return statement;
  }
  const std::string_view of = strategy                               ? std::string_view(*strategy)
                              : statement.scales == ScaleKind::group ? "group"
                                                                     : "tensor";
  if (of == "block") {
    BATON_TRY(const bool has_block, read_block(*weights, "block_structure", statement));
    if (!has_block) return json::missing("block_structure");
  } else if (of == "tensor" || of == "channel") {
    statement.scales = of == "tensor" ? ScaleKind::tensor : ScaleKind::row;
  } else if (of != "group") {
    return refuse(fmt::format("scales by '{}'", of), "strategy");
  } else if (const Value* size = json::find(*weights, "group_size"); size == nullptr || size->is_null()) {
    return json::missing("group_size");
  } else if (statement.scheme == WeightScheme::f8 && statement.scales == ScaleKind::group) {
    statement.scales = ScaleKind::block;  // of one row (MXFP8)
  }
  return statement;
}

/// Whether a group of modules has activations in 8-bit floats with a scale for the row or the tensor or, beside integers,
/// in 8-bit integers without zeros whose scale is that of the row at hand.
Result<bool> has_8_bit_activations(const Value& group, bool are_floats) {
  const Value* activations = json::find(group, "input_activations");
  if (activations == nullptr || !activations->is_object()) return false;
  BATON_TRY(const auto bits, json::get_optional<std::int64_t>(*activations, "num_bits"));
  BATON_TRY(const auto type, json::get_optional<std::string>(*activations, "type"));
  BATON_TRY(const auto strategy, json::get_optional<std::string>(*activations, "strategy"));
  if (bits != 8) return false;
  if (are_floats) return type == "float" && (strategy == "token" || strategy == "tensor");
  const Value* dynamic = json::find(*activations, "dynamic");  // or a word
  const bool is_dynamic = dynamic != nullptr && *dynamic == Value(true);
  const Value* symmetric = json::find(*activations, "symmetric");
  const bool has_zeros = symmetric != nullptr && *symmetric == Value(false);
  return (!type || type == "int") && strategy == "token" && is_dynamic && !has_zeros;
}

Result<void> expect_known_format(const Value& config) {
  BATON_TRY(const auto format, json::get_optional<std::string>(config, "format"));
  if (!format) return {};
  for (const std::string_view known : {"dense", "naive-quantized", "float-quantized", "mxfp8-quantized", "nvfp4-pack-quantized",
                                       "mxfp4-pack-quantized", "int-quantized", "pack-quantized", "mixed-precision"})
    if (*format == known) return {};
  return refuse(fmt::format("compressed-tensors in the format '{}'", *format), "format");
}

/// Groups may have formats of their own ("mixed-precision").
Result<void> read_groups_of_modules(const Value& config, QuantizationSpec& spec) {
  const Value* groups = json::find(config, "config_groups");
  if (groups == nullptr || !groups->is_object()) return json::missing("config_groups");
  // Of groups with weights in 8-bit floats, and of those with integers: whether there are some, and whether all have such
  // activations.
  struct Groups {
    bool exist = false;
    bool all_have = true;
    bool have_activations() const { return exist && all_have; }
  } floats, integers;
  for (const auto& [name, group] : groups->items()) {
    BATON_TRY_VOID(expect_known_format(group));
    BATON_TRY(const auto statement, read_group_of_modules(group));
    if (!statement) continue;
    BATON_TRY_VOID(add_statement(spec, *statement, "config_groups"));
    if (statement->scheme == WeightScheme::f4) continue;
    const bool are_floats = statement->scheme == WeightScheme::f8;
    BATON_TRY(const bool has_them, has_8_bit_activations(group, are_floats));
    Groups& of_kind = are_floats ? floats : integers;
    of_kind.exist = true;
    of_kind.all_have = of_kind.all_have && has_them;
  }
  spec.has_f8_activations = floats.have_activations();
  spec.has_int8_activations = integers.have_activations();
  return {};
}

Result<QuantizationSpec> read_compressed_tensors(const Value& config) {
  QuantizationSpec spec;
  BATON_TRY_VOID(expect_known_format(config));
  if (const Value* sparsity = json::find(config, "sparsity_config"); sparsity != nullptr && sparsity->is_object()) {
    BATON_TRY(const auto format, json::get_optional<std::string>(*sparsity, "format"));
    if (format && *format != "dense") return refuse(fmt::format("the sparse format '{}'", *format), "sparsity_config");
  }
  // Rotations of the weights that activations need, too.
  if (const Value* transforms = json::find(config, "transform_config"); transforms != nullptr && !transforms->empty()) {
    const Value* groups = json::find(*transforms, "config_groups");
    if (groups == nullptr || !groups->empty()) return refuse("transforms", "transform_config");
  }
  BATON_TRY_VOID(read_groups_of_modules(config, spec));
  return spec;
}

/// The scheme of one of ModelOpt's algorithms.
Result<SchemeStatement> read_algorithm(const Value& config, std::string_view key) {
  BATON_TRY(const auto algorithm, json::get_optional<std::string>(config, "quant_algo"));
  const std::string name = algorithm.value_or("an algorithm that is not stated");
  SchemeStatement statement{.scheme = WeightScheme::f8, .scales = ScaleKind::tensor};
  if (name == "FP8_PER_CHANNEL_PER_TOKEN") {
    statement.scales = ScaleKind::row;
  } else if (name == "MXFP8") {
    statement.scales = ScaleKind::block;
    statement.columns = 32;
  } else if (name == "NVFP4" || name == "W4A16_NVFP4") {
    statement = {.scheme = WeightScheme::f4, .scales = ScaleKind::group, .columns = kNvfp4Group};
    BATON_TRY_VOID(read_group(config, statement));
    if (statement.columns != kNvfp4Group)
      return refuse(fmt::format("modelopt's {} with a scale for {} columns", name, statement.columns), key);
  } else if (name != "FP8") {
    return refuse(fmt::format("modelopt's {}", name), key);
  }
  return statement;
}

/// Whether some weights are in f8, and none of them in blocks: ModelOpt's algorithms for these have activations in 8-bit floats.
bool has_only_whole_f8(std::span<const SchemeStatement> statements) {
  bool has_f8 = false;
  for (const SchemeStatement& statement : statements) {
    if (statement.scheme != WeightScheme::f8) continue;
    if (statement.scales == ScaleKind::block) return false;
    has_f8 = true;
  }
  return has_f8;
}

Result<QuantizationSpec> read_modelopt(const Value& config) {
  QuantizationSpec spec;
  const Value* algorithm = json::find(config, "quant_algo");
  if (algorithm == nullptr || !json::is_text(*algorithm, "MIXED_PRECISION")) {
    BATON_TRY(const SchemeStatement statement, read_algorithm(config, "quant_algo"));
    spec.statements.push_back(statement);
    spec.has_f8_activations = has_only_whole_f8(spec.statements);
    return spec;
  }
  const Value* layers = json::find(config, "quantized_layers");
  if (layers == nullptr || !layers->is_object()) {
    BATON_TRY_VOID(read_groups_of_modules(config, spec));
    return spec;
  }
  for (const auto& [name, layer] : layers->items()) {
    BATON_TRY(const SchemeStatement statement, read_algorithm(layer, "quantized_layers"));
    BATON_TRY_VOID(add_statement(spec, statement, "quantized_layers"));
  }
  spec.has_f8_activations = has_only_whole_f8(spec.statements);
  return spec;
}

Result<QuantizationSpec> read_method(const Value& config, std::string_view method, std::string_view key) {
  if (method == "fp8") return read_fp8(config);
  if (method == "fbgemm_fp8")
    return QuantizationSpec{.statements = {{.scheme = WeightScheme::f8, .scales = ScaleKind::row}}, .has_f8_activations = true};
  if (method == "mxfp4")
    return QuantizationSpec{.statements = {{.scheme = WeightScheme::f4, .scales = ScaleKind::group, .columns = kMxfp4Group}}};
  if (method == "compressed-tensors") return read_compressed_tensors(config);
  if (method == "gptq") return read_gptq(config);
  if (method == "awq") return read_awq(config);
  if (method == "modelopt") return read_modelopt(config);
  return refuse(fmt::format("'{}'", method), key);
}

/// The method that `config`, an object, names.
std::string method_of(const Value& config) {
  const Value* method = json::find(config, "quant_method");
  if (method != nullptr && method->is_string()) return method->get_ref<const std::string&>();
  for (const std::string_view key : {"load_in_4bit", "load_in_8bit"})
    if (const Value* loads = json::find(config, key); loads != nullptr && *loads == true) return "bitsandbytes";
  if (json::find(config, "config_groups") != nullptr) return "compressed-tensors";
  return json::dump(config).substr(0, 80);
}

constexpr std::array<std::string_view, 3> kFiles = {"hf_quant_config.json", "quantize_config.json", "quant_config.json"};

/// What `file`, the contents of one of kFiles, states. Older tools of GPTQ and AWQ do not name themselves.
Result<QuantizationSpec> read_file_fields(const Value& file, std::string_view name) {
  QuantizationSpec spec;
  if (name == kFiles[0]) {
    const Value* fields = json::find(file, "quantization");
    if (fields == nullptr || !fields->is_object()) return json::missing("quantization");
    const Value* algorithm = json::find(*fields, "quant_algo");
    if (algorithm == nullptr || algorithm->is_null()) return spec;  // keys and values alone
    BATON_TRY(spec, read_modelopt(*fields));
    spec.method = "modelopt";
    return spec;
  }
  const auto has = [&](std::string_view key) { return json::find(file, key) != nullptr; };
  const bool is_awq = has("w_bit") || has("zero_point") || has("version");
  const std::string method = has("quant_method") ? method_of(file) : is_awq ? "awq" : "gptq";
  BATON_TRY(spec, read_method(file, method, name));
  spec.method = method;
  return spec;
}

}  // namespace

std::string to_string(const SchemeStatement& statement) {
  const std::string_view zeros = statement.is_symmetric ? "" : " and a zero";
  switch (statement.scales) {
    case ScaleKind::tensor: return fmt::format("{} with a scale{} for the tensor", to_string(statement.scheme), zeros);
    case ScaleKind::row: return fmt::format("{} with a scale{} for each row", to_string(statement.scheme), zeros);
    case ScaleKind::group:
      return fmt::format("{} with a scale{} for {} columns of a row", to_string(statement.scheme), zeros, statement.columns);
    case ScaleKind::block:
      return fmt::format("{} with a scale{} for {} x {} weights", to_string(statement.scheme), zeros, statement.rows,
                         statement.columns);
  }
  return "unknown";
}

Result<QuantizationSpec> read_quantization(const Value& config) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    const Value* found = json::find(config, key);
    if (found == nullptr || found->is_null()) continue;
    const std::string method = method_of(*found);
    BATON_TRY(QuantizationSpec spec, read_method(*found, method, key));
    spec.method = method;
    return spec;
  }
  return QuantizationSpec{};
}

Result<QuantizationSpec> read_model_quantization(const Value& config) {
  BATON_TRY(QuantizationSpec spec, read_quantization(config));
  const Value* text = json::find(config, "text_config");
  if (!spec.method.empty() || text == nullptr) return spec;
  return read_quantization(*text);
}

std::span<const std::string_view> quantization_files() { return kFiles; }

Result<QuantizationSpec> read_quantization_file(const std::filesystem::path& folder) {
  for (const std::string_view name : kFiles) {
    const std::filesystem::path path = folder / name;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    BATON_TRY(const Value file, json::parse_file(path));
    auto spec = read_file_fields(file, name);
    if (!spec) {
      spec.error().message = fmt::format("{}: {}", path.string(), spec.error().message);
      if (spec.error().code == ErrorCode::invalid_request) spec.error().code = ErrorCode::invalid_data;
    }
    return spec;
  }
  return QuantizationSpec{};
}

}  // namespace baton
