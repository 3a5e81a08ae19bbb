/// What the families laid out as Llama have in common.
#pragma once

#include "model/config_fields.h"
#include "model/spec.h"

namespace baton {

/// The names of a Llama's tensors, which most families share.
inline constexpr TensorNames kLlamaNames = {.embedding = "model.embed_tokens",
                                            .attention_norm = "model.layers.{}.input_layernorm",
                                            .q = "model.layers.{}.self_attn.q_proj",
                                            .k = "model.layers.{}.self_attn.k_proj",
                                            .v = "model.layers.{}.self_attn.v_proj",
                                            .attention_out = "model.layers.{}.self_attn.o_proj",
                                            .feed_forward_norm = "model.layers.{}.post_attention_layernorm",
                                            .gate = "model.layers.{}.mlp.gate_proj",
                                            .up = "model.layers.{}.mlp.up_proj",
                                            .down = "model.layers.{}.mlp.down_proj",
                                            .final_norm = "model.norm",
                                            .lm_head = "lm_head",
                                            .ignored_suffix = ".rotary_emb.inv_freq"};

/// What the families laid out as Llama have in common: RMS norms before both blocks, rotary attention with grouped
/// heads, a gated feed-forward block with SiLU, no biases, no windows, equal layers. The rotation is ropes[0].
Result<ModelSpec> read_llama_layout(const json::Value& config, const fields::Defaults& defaults);
/// The same without the rotation, whatever the config's activation is.
Result<ModelSpec> read_llama_layers(const json::Value& config, const fields::Defaults& defaults);
/// What a config says of rotation, for the heads of `spec`.
fields::RopeContext rope_context(const fields::Defaults& defaults, const ModelSpec& spec);
/// Gives all layers norms after the blocks instead of before them, and names for norms of queries and keys, as in OLMo 2.
void give_post_norms(ModelSpec& spec);
/// Names the router and the experts as Qwen's models do (`mlp.experts`), or Mixtral (`block_sparse_moe`).
void name_experts(TensorNames& names);
void name_mixtral_experts(TensorNames& names);
/// Names the shared expert as DeepSeek and those after it do (`mlp.shared_experts`).
void name_shared_experts(TensorNames& names);
/// Says that the checkpoint has `layer` after the model's own ones, for drafts (MtpSpec), as DeepSeek and those after it do.
void give_mtp_layer(const LayerSpec& layer, ModelSpec& spec);
/// Gives all layers the biases of `attention_bias` (queries, keys, values and output) and `mlp_bias`.
Result<void> read_llama_biases(const json::Value& config, ModelSpec& spec);

}  // namespace baton
