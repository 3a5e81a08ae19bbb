/// config.json of a Nemotron-H to its spec.
#include "model/families/readers.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/state_storage.h"
#include "model/config_fields.h"

namespace baton {
namespace {

using json::Value;

constexpr TensorNames kNemotronNames = {.embedding = "model.embeddings",
                                        .attention_norm = "model.layers.{}.norm",
                                        .q = "model.layers.{}.mixer.q_proj",
                                        .k = "model.layers.{}.mixer.k_proj",
                                        .v = "model.layers.{}.mixer.v_proj",
                                        .attention_out = "model.layers.{}.mixer.o_proj",
                                        .recurrent_in = "model.layers.{}.mixer.in_proj",
                                        .conv = "model.layers.{}.mixer.conv1d",
                                        .a_log = "model.layers.{}.mixer.A_log",
                                        .dt_bias = "model.layers.{}.mixer.dt_bias",
                                        .skip = "model.layers.{}.mixer.D",
                                        .recurrent_norm = "model.layers.{}.mixer.norm",
                                        .recurrent_out = "model.layers.{}.mixer.out_proj",
                                        .feed_forward_norm = "model.layers.{}.norm",
                                        .gate = "",
                                        .up = "model.layers.{}.mixer.up_proj",
                                        .down = "model.layers.{}.mixer.down_proj",
                                        .router = "model.layers.{}.mixer.gate",
                                        .choice_bias = "model.layers.{}.mixer.gate.e_score_correction_bias",
                                        .expert_up = "model.layers.{}.mixer.experts.{}.up_proj",
                                        .expert_down = "model.layers.{}.mixer.experts.{}.down_proj",
                                        .shared_up = "model.layers.{}.mixer.shared_experts.up_proj",
                                        .shared_down = "model.layers.{}.mixer.shared_experts.down_proj",
                                        .final_norm = "model.norm_f",
                                        .lm_head = "lm_head",
                                        .ignored_suffix = ".rotary_emb.inv_freq"};

constexpr fields::Defaults kNemotronDefaults{.n_kv_heads = 8, .head_dim = 128, .max_position = 4096};

/// What each layer is: 'M' Mamba-2, '*' attention, '-' a feed-forward block, 'E' one with experts.
Result<std::string> read_pattern(const Value& config) {
  BATON_TRY(const auto pattern, json::get_optional<std::string>(config, "hybrid_override_pattern"));
  if (pattern) {
    for (const char letter : *pattern)
      if (std::string_view("M*-E").find(letter) == std::string_view::npos)
        return fields::unsupported("hybrid_override_pattern", *pattern, "letters M, *, - and E");
    return *pattern;
  }
  BATON_TRY(const auto types, json::get<std::vector<std::string>>(config, "layers_block_type"));
  std::string letters;
  for (const std::string& type : types) {
    if (type == "mamba" || type == "linear_attention")
      letters += 'M';
    else if (type == "attention" || type == "full_attention")
      letters += '*';
    else if (type == "mlp")
      letters += '-';
    else if (type == "moe")
      letters += 'E';
    else
      return fields::unsupported("layers_block_type", type, R"("mamba", "attention", "mlp" or "moe")");
  }
  return letters;
}

Result<Mamba2Spec> read_mamba2(const Value& config, const NormSpec& norm) {
  Mamba2Spec mamba;
  BATON_TRY_VOID(fields::expect_silu(config, "mamba_hidden_act"));
  BATON_TRY_VOID(fields::expect(config, "mamba_ssm_cache_dtype", "float32"));
  BATON_TRY_VOID(expect_no_time_step_limit(config));
  BATON_TRY(mamba.n_heads, fields::optional_size(config, "mamba_num_heads", fields::kMaxHeads, 128));
  BATON_TRY(mamba.head_dim, fields::optional_size(config, "mamba_head_dim", kMaxStateDim, 64));
  BATON_TRY(mamba.n_groups, fields::optional_size(config, "n_groups", fields::kMaxHeads, 8));
  BATON_TRY(mamba.state_dim, fields::optional_size(config, "ssm_state_size", kMaxStateDim, 128));
  BATON_TRY(mamba.n_taps, fields::optional_size(config, "conv_kernel", kMaxConvTaps, 4));
  BATON_TRY_VOID(check_mamba2(mamba, "n_groups", "conv_kernel"));
  BATON_TRY(mamba.has_conv_bias, fields::optional_flag(config, "use_conv_bias", true));
  BATON_TRY(mamba.has_bias, fields::optional_flag(config, "use_bias", false));
  mamba.n_norm_groups = mamba.n_groups;
  mamba.norm.epsilon = norm.epsilon;
  return mamba;
}

Result<AttentionSpec> read_attention(const Value& config, const ModelSpec& spec) {
  AttentionSpec attention;
  BATON_TRY_VOID(fields::expect_null(config, "sliding_window"));
  BATON_TRY_VOID(fields::expect(config, "attention_bias", false));
  BATON_TRY_VOID(fields::read_heads(config, kNemotronDefaults, spec.d_model, attention));
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.rope = AttentionSpec::kNoRope;
  return attention;
}

/// Experts as in DeepSeek V3, beside a shared one as wide as `moe_shared_expert_intermediate_size` says.
Result<FeedForwardSpec> read_nemotron_experts(const Value& config) {
  BATON_TRY_VOID(fields::expect_null(config, "moe_latent_size"));
  BATON_TRY_VOID(fields::expect(config, "n_shared_experts", 1));
  BATON_TRY(FeedForwardSpec experts,
            read_grouped_experts(config,
                                 {.d_ff = 7688, .n_experts = 8, .n_experts_per_row = 2, .n_shared = 1, .renormalises = true}));
  BATON_TRY(experts.d_ff_shared,
            fields::optional_size(config, "moe_shared_expert_intermediate_size", fields::kMaxFeedForward, 7688));
  experts.routing.score = RoutingRule::Score::sigmoid;
  experts.routing.added_to_sum = 1e-20f;
  experts.has_choice_bias = true;
  return experts;
}

}  // namespace

/// Layers with one block each, in the order of a pattern: Mamba-2, attention without rotation, or a feed-forward block with the
/// square of ReLU, with or without experts. The defaults are those of Transformers' NemotronHConfig.
Result<ModelSpec> read_nemotron_h(const Value& config) {
  BATON_TRY_VOID(fields::expect_decoder(config));
  BATON_TRY_VOID(fields::expect(config, "mlp_hidden_act", "relu2"));
  BATON_TRY_VOID(fields::expect(config, "residual_in_fp32", false));
  ModelSpec spec;
  spec.names = kNemotronNames;
  spec.ignored_prefix = "mtp.";
  spec.other_roots = {{.model = "backbone.", .lm_head = "lm_head"}};
  BATON_TRY_VOID(fields::read_model_fields(config, kNemotronDefaults, spec));
  BATON_TRY(const double epsilon, fields::optional_number(config, "layer_norm_epsilon", 1e-12, 1, 1e-5));
  spec.final_norm.epsilon = static_cast<float>(epsilon);
  BATON_TRY(const std::string pattern, read_pattern(config));
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "mlp_bias", false));
  LayerSpec layer;
  layer.norm = spec.final_norm;
  BATON_TRY(layer.attention, read_attention(config, spec));
  for (const char letter : pattern) {
    LayerSpec made = layer;
    made.has_mixer = letter == 'M' || letter == '*';
    made.has_feed_forward = !made.has_mixer;
    if (letter == 'M') {
      BATON_TRY(made.mamba2, read_mamba2(config, layer.norm));
    } else if (letter == 'E') {
      BATON_TRY(made.feed_forward, read_nemotron_experts(config));
    } else if (letter == '-') {
      BATON_TRY(made.feed_forward.d_ff, fields::optional_size(config, "intermediate_size", fields::kMaxFeedForward, 21504));
    }
    made.feed_forward.kind = FeedForwardSpec::Kind::relu_squared;
    made.feed_forward.has_bias = has_biases && letter == '-';
    spec.layers.push_back(made);
  }
  if (has_biases && pattern.find('E') != std::string::npos)
    return fields::unsupported("mlp_bias", true, "false in a model with experts");
  if (pattern.find('*') == std::string::npos || spec.layers.size() > static_cast<std::size_t>(fields::kMaxLayers))
    return fields::bad_value("hybrid_override_pattern",
                             "a model must have 1 to {} layers, and attention in one of them, not \"{}\"", fields::kMaxLayers,
                             pattern);
  return spec;
}

}  // namespace baton
