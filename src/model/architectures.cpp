/// The rows. Each is proven by golden logits of tiny checkpoints (tests/goldens/).
#include "model/architectures.h"

#include <array>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::array kArchitectures = {
    Architecture{
        .name = "LlamaForCausalLM",
        .model_type = "llama",
        .activation = "silu",
        .tensors = {.embedding = "model.embed_tokens.weight",
                    .attention_norm = "model.layers.{}.input_layernorm.weight",
                    .q = "model.layers.{}.self_attn.q_proj.weight",
                    .k = "model.layers.{}.self_attn.k_proj.weight",
                    .v = "model.layers.{}.self_attn.v_proj.weight",
                    .attention_out = "model.layers.{}.self_attn.o_proj.weight",
                    .feed_forward_norm = "model.layers.{}.post_attention_layernorm.weight",
                    .gate = "model.layers.{}.mlp.gate_proj.weight",
                    .up = "model.layers.{}.mlp.up_proj.weight",
                    .down = "model.layers.{}.mlp.down_proj.weight",
                    .final_norm = "model.norm.weight",
                    .lm_head = "lm_head.weight",
                    .ignored_suffix = ".rotary_emb.inv_freq"},
    },
};

}  // namespace

std::span<const Architecture> known_architectures() { return kArchitectures; }

Result<const Architecture*> find_architecture(std::string_view name) {
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.name == name) return &row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return fail(ErrorCode::unsupported, fmt::format("the architecture '{}' is not supported; known are: {}", name, known));
}

std::string tensor_name(std::string_view pattern, int layer) {
  const std::size_t place = pattern.find("{}");
  if (place == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, place), layer, pattern.substr(place + 2));
}

}  // namespace baton
