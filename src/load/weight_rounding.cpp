/// Compares the name that was asked for with the name in the configuration.
#include "load/weight_rounding.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "io/file.h"
#include "io/json.h"

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
          "--quantization {}: the checkpoint is not quantised; fp8, int8 and int4 quantise its weights at load", name));
    rounding.scheme = *scheme;
  }
  rounding.rounds_lm_head = options.quantize_lm_head;
  if (options.quantize_lm_head && !rounding.is_on())
    return fail(ErrorCode::invalid_request,
                "--quantize-lm-head needs --quantization fp8, int8 or int4, and a checkpoint that is not quantised",
                "quantize_lm_head");
  return rounding;
}

Result<std::string> quantization_text(const std::filesystem::path& folder, const ModelOptions& options) {
  std::string text;
  std::error_code ignored;
  for (const std::string_view name : quantization_files()) {
    if (!std::filesystem::exists(folder / name, ignored)) continue;
    BATON_TRY(const std::string file, read_file(folder / name));
    text += fmt::format("\n{}\n{}", name, file);
  }
  if (options.quantization.empty() && !options.quantize_lm_head) return text;
  BATON_TRY(const json::Value config, json::parse_file(folder / "config.json"));
  BATON_TRY(QuantizationSpec stated, read_model_quantization(config));
  if (stated.method.empty()) {
    BATON_TRY(stated, read_quantization_file(folder));
  }
  BATON_TRY(const WeightRounding rounding, rounding_of(options, stated));
  if (!rounding.is_on()) return text;
  return text + fmt::format("\nweights rounded to {}, groups of {}{}\n", to_string(rounding.scheme), rounding.group,
                            rounding.rounds_lm_head ? ", output layer too" : "");
}

void log_rounding(const WeightRounding& rounding, const ModelSpec& spec) {
  if (!rounding.is_on()) return;
  const auto n_routers =
      std::ranges::count_if(spec.layers, [](const LayerSpec& layer) { return layer.feed_forward.has_experts(); });
  log::info(
      "event=weights_quantized scheme={} scales=\"one for {}\" rounding=\"to nearest, symmetric\" kept=\"embeddings{}{}\"",
      to_string(rounding.scheme),
      rounding.scheme == WeightScheme::i4 ? fmt::format("{} columns of a row", rounding.group) : "each row",
      rounding.rounds_lm_head ? "" : ", output layer", n_routers > 0 ? fmt::format(", {} routers", n_routers) : "");
}

}  // namespace baton
