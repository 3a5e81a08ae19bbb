/// Lists the families and finds the one that a config.json names.
#include "model/families/families.h"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "model/families/cohere2.h"
#include "model/families/gemma.h"
#include "model/families/granite.h"
#include "model/families/llama.h"
#include "model/families/mistral.h"
#include "model/families/mixtral.h"
#include "model/families/olmo2.h"
#include "model/families/phi.h"
#include "model/families/phi3.h"
#include "model/families/qwen.h"
#include "model/families/qwen3_moe.h"
#include "model/families/refusals.h"
#include "model/families/smollm3.h"

namespace baton {
namespace {

constexpr std::array kFamilies = {kLlamaFamily,   kMistralFamily, kMinistralFamily,        kMistral3Family, kMixtralFamily,
                                  kQwen2Family,   kQwen3Family,   kQwen3MoeFamily,         kPhiFamily,      kPhi3Family,
                                  kGemma2Family,  kGemma3Family,  kGemma3WithImagesFamily, kGraniteFamily,  kOlmo2Family,
                                  kSmolLm3Family, kCohere2Family};

tl::unexpected<Error> unknown_family(std::span<const Family> families, std::string_view name, const json::Value& config) {
  if (const std::string_view missing = missing_part(name, config); !missing.empty())
    return fail(ErrorCode::unsupported,
                fmt::format("the architecture '{}' is not supported: Baton does not compute {}", name, missing));
  std::string known;
  for (const Family& family : families) known += (known.empty() ? "" : ", ") + std::string(family.name);
  return fail(ErrorCode::unsupported, fmt::format("the architecture '{}' is not supported; known are: {}", name, known));
}

}  // namespace

std::span<const Family> shipped_families() { return kFamilies; }

Result<const Family*> find_family(std::span<const Family> families, const json::Value& config) {
  BATON_TRY(const auto names, json::get_optional<std::vector<std::string>>(config, "architectures"));
  if (names && !names->empty()) {
    for (const Family& family : families)
      if (family.name == names->front()) return &family;
    return unknown_family(families, names->front(), config);
  }
  BATON_TRY(const auto model_type, json::get<std::string>(config, "model_type"));
  for (const Family& family : families)
    if (family.model_type == model_type) return &family;
  return unknown_family(families, model_type, config);
}

}  // namespace baton
