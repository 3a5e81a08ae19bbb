/// Names, shapes and configuration of compressed-tensors.
#include "load/quantize/checkpoint_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "model/model_tensors.h"
#include "model/weights.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";

std::string stem_of(const std::string& weight) { return weight.substr(0, weight.size() - kWeight.size()); }

/// The file of each tensor of the checkpoint, by file.
Result<std::map<std::string, std::vector<std::string>>> names_by_file(const fs::path& folder, const Checkpoint& checkpoint) {
  constexpr const char* kSingle = "model.safetensors";
  std::map<std::string, std::vector<std::string>> names;
  std::error_code ignored;
  if (fs::exists(folder / kSingle, ignored)) {
    names[kSingle] = checkpoint.names();
    return names;
  }
  BATON_TRY(const json::Value index, json::parse_file(folder / "model.safetensors.index.json"));
  for (const auto& [name, file] : index.at("weight_map").items())
    if (checkpoint.contains(name)) names[file.get<std::string>()].push_back(name);  // Checkpoint::open has checked the names
  return names;
}

/// The tensors of a rounded matrix [n, k].
std::vector<TensorHeader> rounded_tensors(const TensorJob& job) {
  const std::int64_t n = job.matrix.shape[0];
  const std::int64_t k = job.matrix.shape[1];
  const std::int64_t n_groups = (k + job.form.scale_columns - 1) / job.form.scale_columns;
  const auto scale_bytes = static_cast<std::int64_t>(size_bytes(job.form.scale_dtype));
  const TensorHeader scales{job.stem + ".weight_scale",
                            job.form.scale_dtype == DType::bf16 ? "BF16" : "F32",
                            {n, n_groups},
                            n * n_groups * scale_bytes};
  if (job.form.scheme != WeightScheme::i4)
    return {{job.stem + ".weight", job.form.scheme == WeightScheme::f8 ? "F8_E4M3" : "I8", {n, k}, n * k}, scales};
  const std::int64_t n_words = (k + 7) / 8;
  return {{job.stem + ".weight_packed", "I32", {n, n_words}, n * n_words * 4},
          scales,
          {job.stem + ".weight_shape", "I64", {2}, 16}};
}

TensorJob rounded_job(const ExpectedTensor& matrix, std::string stem, const WeightRounding& rounding) {
  TensorJob job{matrix.name, true, false, matrix, rounded_form(rounding, matrix.shape[1]), std::move(stem), {}};
  job.written = rounded_tensors(job);
  return job;
}

/// The matrices that are rounded, by name.
std::map<std::string, ExpectedTensor> rounded_matrices(const ModelSpec& spec, const WeightRounding& rounding) {
  const std::set<std::string> kept = unrounded_matrices(spec, rounding.rounds_lm_head);
  const std::string table = embedding_tensors(spec, {}).weights.front().tensor.name;
  std::map<std::string, ExpectedTensor> matrices;
  for (ExpectedTensor& tensor : expected_tensors(spec))
    if (tensor.kind == ExpectedTensor::Kind::matrix && !kept.contains(tensor.name) && tensor.name != table)
      matrices.emplace(tensor.name, std::move(tensor));
  return matrices;
}

/// One of `config_groups`. `columns` of a scale; 0: the row.
json::Value group_json(const WeightRounding& rounding, std::int64_t columns, json::Value targets, std::string_view format) {
  const bool is_float = rounding.scheme == WeightScheme::f8;
  json::Value weights{{"num_bits", rounding.scheme == WeightScheme::i4 ? 4 : 8},
                      {"type", is_float ? "float" : "int"},
                      {"symmetric", true},
                      {"strategy", columns == 0 ? "channel" : "group"},
                      {"group_size", nullptr},
                      {"dynamic", false},
                      {"observer", "minmax"}};
  if (columns != 0) weights["group_size"] = columns;
  // Engines without kernels for int8 weights beside 16-bit activations quantise these by token.
  json::Value inputs = nullptr;
  if (rounding.scheme == WeightScheme::i8)
    inputs = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
  return {{"targets", std::move(targets)},
          {"weights", std::move(weights)},
          {"input_activations", std::move(inputs)},
          {"output_activations", nullptr},
          {"format", format}};
}

}  // namespace

Result<CheckpointPlan> plan_checkpoint(const fs::path& folder, const Checkpoint& checkpoint, const ModelSpec& spec,
                                       const WeightRounding& rounding) {
  CheckpointPlan plan;
  for (const ExpectedTensor& tensor : expected_tensors(spec))
    if (tensor.n_experts > 0)
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}' holds the matrices of all experts, which cannot be written as quantised ones; "
                              "--quantization rounds them at load",
                              tensor.name));
  const auto matrices = rounded_matrices(spec, rounding);
  const ExpectedTensor table = embedding_tensors(spec, {}).weights.front().tensor;
  const std::string lm_head = checkpoint_name(spec.names, spec.names.lm_head, 0);
  plan.unties_lm_head = spec.tie_embeddings && rounding.rounds_lm_head;
  plan.has_own_lm_head = plan.unties_lm_head || !spec.tie_embeddings;
  std::set<std::string> of_model;
  for (ExpectedTensor& tensor : expected_tensors(spec)) of_model.insert(std::move(tensor.name));
  if (!rounding.rounds_lm_head) plan.ignored.push_back(lm_head);
  BATON_TRY(auto files, names_by_file(folder, checkpoint));
  for (auto& [file, names] : files) {
    std::ranges::sort(names, {}, [&](const std::string& name) { return checkpoint.find(name)->bytes.data(); });
    ShardPlan shard{file, {}};
    for (const std::string& name : names) {
      if (plan.unties_lm_head && name == lm_head + ".weight") continue;  // a copy of the table
      const StoredTensor& stored = *checkpoint.find(name);
      if (const auto matrix = matrices.find(name); matrix != matrices.end()) {
        shard.jobs.push_back(rounded_job(matrix->second, stem_of(name), rounding));
        continue;
      }
      shard.jobs.push_back({name,
                            false,
                            of_model.contains(name),
                            {},
                            {},
                            {},
                            {{name, stored.dtype, stored.shape, std::int64_t(stored.bytes.size())}}});
      const bool is_linear = name.ends_with(kWeight) && stored.shape.size() == 2 && name != table.name;
      if (is_linear && stem_of(name) != lm_head) plan.ignored.push_back(stem_of(name));
      if (plan.unties_lm_head && name == table.name) shard.jobs.push_back(rounded_job(table, lm_head, rounding));
    }
    std::vector<TensorHeader> all;
    for (const TensorJob& job : shard.jobs) {
      all.insert(all.end(), job.written.begin(), job.written.end());
      if (!job.is_rounded) continue;
      const bool is_row = job.form.scale_columns >= job.matrix.shape[1];
      plan.modules_by[is_row ? 0 : job.form.scale_columns].push_back(job.stem);
    }
    plan.size_bytes += header_bytes(all);
    for (const TensorHeader& tensor : all) plan.size_bytes += tensor.size_bytes;
    plan.shards.push_back(std::move(shard));
  }
  return plan;
}

json::Value quantized_config(json::Value config, const CheckpointPlan& plan, const WeightRounding& rounding) {
  const std::string_view format = rounding.scheme == WeightScheme::f8   ? "float-quantized"
                                  : rounding.scheme == WeightScheme::i8 ? "int-quantized"
                                                                        : "pack-quantized";
  json::Value groups = json::Value::object();
  for (const auto& [columns, modules] : plan.modules_by)
    groups[fmt::format("group_{}", groups.size())] =
        group_json(rounding, columns, plan.modules_by.size() == 1 ? json::Value{"Linear"} : json::Value(modules), format);
  config["quantization_config"] = {{"quant_method", "compressed-tensors"}, {"format", format},
                                   {"quantization_status", "compressed"},  {"global_compression_ratio", nullptr},
                                   {"kv_cache_scheme", nullptr},           {"ignore", plan.ignored},
                                   {"config_groups", std::move(groups)}};
  if (plan.has_own_lm_head) {
    config["tie_word_embeddings"] = false;
    if (const json::Value* text = json::find(config, "text_config"); text != nullptr && text->is_object())
      config["text_config"]["tie_word_embeddings"] = false;
  }
  return config;
}

}  // namespace baton
