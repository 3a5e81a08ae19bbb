/// Compares the name that was asked for with the name in the configuration.
#include "load/weight_rounding.h"

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "io/file.h"
#include "io/json.h"
#include "model/model_tensors.h"
#include "model/weights.h"

namespace baton {
namespace {

/// The schemes that weights are rounded to, by their names.
constexpr auto kRounded = std::to_array<std::pair<std::string_view, WeightScheme>>(
    {{"fp8", WeightScheme::f8}, {"int8", WeightScheme::i8}, {"int4", WeightScheme::i4}});

std::optional<WeightScheme> scheme_named(std::string_view name) {
  for (const auto& [known, scheme] : kRounded)
    if (known == name) return scheme;
  return std::nullopt;
}

/// vLLM has two names for a method with two kernels or with two schemes.
std::string_view method_named(std::string_view name) {
  if (name == "gptq_marlin") return "gptq";
  if (name == "awq_marlin") return "awq";
  if (name == "modelopt_fp4") return "modelopt";
  return name;
}

ScaleCounts scale_counts(const ModelSpec& spec, const WeightRounding& rounding) {
  const std::set<std::string> kept = unrounded_matrices(spec, rounding.rounds_lm_head);
  ScaleCounts counts;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (tensor.kind != ExpectedTensor::Kind::matrix || kept.contains(tensor.name)) continue;
    const std::int64_t columns = rounded_form(rounding, tensor.shape[1]).scale_columns;
    ++counts[columns == tensor.shape[1] ? 0 : columns];
  }
  return counts;
}

tl::unexpected<Error> refuse_quantization(std::string message) {
  return fail(ErrorCode::invalid_request, std::move(message), "quantization");
}

}  // namespace

Result<WeightRounding> rounding_of(const ModelOptions& options, const QuantizationSpec& stated) {
  const std::string& name = options.quantization;
  WeightRounding rounding;
  if (!stated.method.empty()) {
    if (!name.empty() && method_named(name) != stated.method)
      return refuse_quantization(fmt::format("--quantization {}: the checkpoint is quantised with {}; leave the flag out", name,
                                             one_line(stated.method, kMaxMessageBytes)));
  } else if (!name.empty()) {
    const auto scheme = scheme_named(name);
    if (!scheme)
      return refuse_quantization(fmt::format(
          "--quantization {}: the checkpoint's configuration names no method; leave the flag out, or give fp8, int8 or int4 to "
          "quantise dense weights at load",
          name));
    rounding.scheme = *scheme;
  }
  rounding.rounds_lm_head = options.quantize_lm_head;
  if (options.quantize_lm_head && !rounding.is_on())
    return fail(ErrorCode::invalid_request,
                "--quantize-lm-head needs --quantization fp8, int8 or int4, and a checkpoint that is not quantised",
                "quantize_lm_head");
  return rounding;
}

std::string QuantizationText::whole() const {
  std::string text;
  for (const auto& [name, contents] : files) text += fmt::format("\n{}\n{}", name, contents);
  if (!activations.empty()) text += fmt::format("\nactivations {}", activations);
  return rounding.empty() ? text : text + fmt::format("\nweights rounded to {}\n", rounding);
}

Result<QuantizationText> quantization_text(const std::filesystem::path& folder, const ModelOptions& options) {
  QuantizationText text;
  std::error_code ignored;
  for (const std::string_view name : quantization_files()) {
    if (!std::filesystem::exists(folder / name, ignored)) continue;
    BATON_TRY(std::string file, read_file(folder / name));
    text.files.emplace_back(name, std::move(file));
  }
  if (options.activation_dtype != "auto") text.activations = options.activation_dtype;
  if (options.quantization.empty() && !options.quantize_lm_head) return text;
  BATON_TRY(const json::Value config, json::parse_file(folder / "config.json"));
  BATON_TRY(QuantizationSpec stated, read_model_quantization(config));
  if (stated.method.empty()) {
    BATON_TRY(stated, read_quantization_file(folder));
  }
  BATON_TRY(const WeightRounding rounding, rounding_of(options, stated));
  if (rounding.is_on())
    text.rounding = fmt::format("{}{}{}", to_string(rounding.scheme),
                                rounding.scheme == WeightScheme::i4 ? fmt::format(", groups of {}", rounding.group) : "",
                                rounding.rounds_lm_head ? ", output layer too" : "");
  return text;
}

std::string scales_text(const WeightRounding& rounding, const ScaleCounts& counts) {
  if (rounding.scheme != WeightScheme::i4) return "one for each row";
  std::string text;
  const auto add = [&](const std::string& of, std::int64_t n) {
    text += fmt::format("{}one for {} ({} {})", text.empty() ? "" : ", ", of, n, n == 1 ? "matrix" : "matrices");
  };
  for (const auto& [columns, n] : counts | std::views::reverse)
    add(columns == 0 ? "the row" : fmt::format("{} columns", columns), n);
  return text;
}

void log_rounding(const WeightRounding& rounding, const ModelSpec& spec) {
  if (!rounding.is_on()) return;
  const auto n_routers =
      std::ranges::count_if(spec.layers, [](const LayerSpec& layer) { return layer.feed_forward.has_experts(); });
  const auto n_gates = std::ranges::count_if(spec.layers, [](const LayerSpec& layer) { return layer.delta.has_value(); });
  log::info("event=weights_quantized scheme={} scales=\"{}\" rounding=\"to nearest, symmetric\" kept=\"embeddings{}{}{}\"",
            to_string(rounding.scheme), scales_text(rounding, scale_counts(spec, rounding)),
            rounding.rounds_lm_head ? "" : ", output layer", n_routers > 0 ? fmt::format(", {} routers", n_routers) : "",
            n_gates > 0 ? fmt::format(", gates of {} recurrent layers", n_gates) : "");
}

}  // namespace baton
