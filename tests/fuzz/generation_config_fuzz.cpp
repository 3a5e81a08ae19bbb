/// Fuzzes generation_config.json: any text gives an error that names the source, or defaults that a request may have,
/// also as the float32 numbers that sampling uses.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/check.h"
#include "model/config.h"
#include "support/fuzz_parts.h"

namespace {

float as_used(const std::optional<double>& number, float otherwise) { return number ? static_cast<float>(*number) : otherwise; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = baton::parse_generation_config(baton::test::fuzz_text(data, size), "the input");
  if (!config) {
    baton::check(config.error().message.find("the input") != std::string::npos, "an error without its source");
    return 0;
  }
  const float temperature = as_used(config->temperature, 1), top_p = as_used(config->top_p, 1);
  const float min_p = as_used(config->min_p, 0), penalty = as_used(config->repetition_penalty, 1);
  baton::check(std::isfinite(temperature) && temperature >= 0, "a temperature that is not a temperature");
  baton::check(top_p > 0 && top_p <= 1 && min_p >= 0 && min_p <= 1, "a share out of range");
  baton::check(std::isfinite(penalty) && penalty > 0 && std::isfinite(1 / penalty), "a penalty that makes no numbers");
  baton::check(!config->top_k || *config->top_k >= -1, "a negative number of candidates");
  baton::check(!config->max_new_tokens || *config->max_new_tokens >= 1, "an answer without tokens");
  for (const baton::TokenId id : config->eos_token_ids) baton::check(id >= 0, "a negative token id");
  return 0;
}
