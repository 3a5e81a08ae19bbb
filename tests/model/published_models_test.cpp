/// Configs of models that people download, with the fields that their authors publish: each is read, and the spec has the
/// number of parameters that is published for the model.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "model/config.h"
#include "model/weights.h"

namespace baton {
namespace {

struct PublishedModel {
  const char* name;
  const char* config;
  std::int64_t n_parameters;
  std::int32_t n_groups;
};

const PublishedModel kPublished[] = {
    {"Mistral_7B_v0_1",
     R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,
         "initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,"model_type":"mistral",
         "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,
         "sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,"vocab_size":32000})",
     7'241'732'096, 1},
    {"Qwen2_5_7B",
     R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151643,
         "hidden_act":"silu","hidden_size":3584,"intermediate_size":18944,"max_position_embeddings":131072,
         "max_window_layers":28,"model_type":"qwen2","num_attention_heads":28,"num_hidden_layers":28,"num_key_value_heads":4,
         "rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":131072,"tie_word_embeddings":false,
         "torch_dtype":"bfloat16","use_mrope":false,"use_sliding_window":false,"vocab_size":152064})",
     7'615'616'512, 1},
    {"Phi_3_mini_4k",
     R"({"architectures":["Phi3ForCausalLM"],"attention_bias":false,"bos_token_id":1,"embd_pdrop":0.0,"eos_token_id":32000,
         "hidden_act":"silu","hidden_size":3072,"intermediate_size":8192,"max_position_embeddings":4096,"model_type":"phi3",
         "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"original_max_position_embeddings":4096,
         "pad_token_id":32000,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000.0,"sliding_window":2047,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":32064})",
     3'821'079'552, 1},
    {"Phi_4_mini_without_longrope",
     R"({"architectures":["Phi3ForCausalLM"],"attention_bias":false,"bos_token_id":199999,"eos_token_id":199999,
         "full_attn_mod":1,"hidden_act":"silu","hidden_size":3072,"intermediate_size":8192,"interpolate_factor":1,
         "lm_head_bias":false,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"phi3","num_attention_heads":24,
         "num_hidden_layers":32,"num_key_value_heads":8,"original_max_position_embeddings":4096,"partial_rotary_factor":0.75,
         "rms_norm_eps":1e-05,"rope_theta":10000.0,"sliding_window":262144,"tie_word_embeddings":true,
         "torch_dtype":"bfloat16","vocab_size":200064})",
     3'836'021'760, 1},
    {"Gemma_2_2b",
     R"({"architectures":["Gemma2ForCausalLM"],"attention_bias":false,"attn_logit_softcapping":50.0,"bos_token_id":2,
         "cache_implementation":"hybrid","eos_token_id":1,"final_logit_softcapping":30.0,"head_dim":256,
         "hidden_act":"gelu_pytorch_tanh","hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,"intermediate_size":9216,
         "max_position_embeddings":8192,"model_type":"gemma2","num_attention_heads":8,"num_hidden_layers":26,
         "num_key_value_heads":4,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_theta":10000.0,"sliding_window":4096,
         "torch_dtype":"float32","vocab_size":256000})",
     2'614'341'888, 2},
    {"Gemma_3_1b",
     R"({"architectures":["Gemma3ForCausalLM"],"attention_bias":false,"attn_logit_softcapping":null,"bos_token_id":2,
         "eos_token_id":[1,106],"final_logit_softcapping":null,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
         "hidden_size":1152,"intermediate_size":6912,"max_position_embeddings":32768,"model_type":"gemma3_text",
         "num_attention_heads":4,"num_hidden_layers":26,"num_key_value_heads":1,"query_pre_attn_scalar":256,
         "rms_norm_eps":1e-06,"rope_local_base_freq":10000,"rope_scaling":null,"rope_theta":1000000,"sliding_window":512,
         "sliding_window_pattern":6,"torch_dtype":"bfloat16","vocab_size":262144})",
     999'885'952, 2},
    {"Olmo_2_7B",
     R"({"architectures":["Olmo2ForCausalLM"],"attention_bias":false,"eos_token_id":100257,"hidden_act":"silu",
         "hidden_size":4096,"intermediate_size":11008,"max_position_embeddings":4096,"model_type":"olmo2",
         "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"pad_token_id":100277,"rms_norm_eps":1e-06,
         "rope_scaling":null,"rope_theta":500000,"tie_word_embeddings":false,"torch_dtype":"float32","vocab_size":100352})",
     7'298'617'344, 1},
    {"Olmo_3_7B",
     R"({"architectures":["Olmo3ForCausalLM"],"attention_bias":false,"eos_token_id":100257,"hidden_act":"silu",
         "hidden_size":4096,"intermediate_size":11008,"max_position_embeddings":65536,"model_type":"olmo3",
         "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"pad_token_id":100277,"rms_norm_eps":1e-06,
         "rope_scaling":{"attention_factor":1.2079441541679836,"beta_fast":32.0,"beta_slow":1.0,"factor":8.0,
         "original_max_position_embeddings":8192,"rope_type":"yarn"},"rope_theta":500000,"sliding_window":4096,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":100278})",
     7'298'011'136, 2},
    {"Exaone_4_0_1_2B",
     R"({"architectures":["Exaone4ForCausalLM"],"bos_token_id":1,"eos_token_id":361,"head_dim":64,"hidden_act":"silu",
         "hidden_size":2048,"intermediate_size":4096,"max_position_embeddings":65536,"model_type":"exaone4",
         "num_attention_heads":32,"num_hidden_layers":30,"num_key_value_heads":8,"pad_token_id":0,"rms_norm_eps":1e-05,
         "rope_scaling":{"factor":16.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,
         "rope_type":"llama3"},"rope_theta":1000000,"sliding_window":null,"sliding_window_pattern":null,
         "tie_word_embeddings":true,"torch_dtype":"bfloat16","vocab_size":102400})",
     1'279'391'488, 1},
    {"Seed_OSS_36B",
     R"({"architectures":["SeedOssForCausalLM"],"attention_bias":true,"attention_out_bias":false,"bos_token_id":0,
         "eos_token_id":2,"head_dim":128,"hidden_act":"silu","hidden_size":5120,"intermediate_size":27648,
         "max_position_embeddings":524288,"mlp_bias":false,"model_type":"seed_oss","num_attention_heads":80,
         "num_hidden_layers":64,"num_key_value_heads":8,"pad_token_id":1,"rms_norm_eps":1e-06,
         "rope_scaling":{"rope_type":"default"},"rope_theta":10000000.0,"tie_word_embeddings":false,
         "torch_dtype":"bfloat16","vocab_size":155136})",
     36'151'104'512, 1},
    {"Ernie_4_5_0_3B",
     R"({"architectures":["Ernie4_5ForCausalLM"],"bos_token_id":1,"eos_token_id":2,"head_dim":128,"hidden_act":"silu",
         "hidden_size":1024,"intermediate_size":3072,"max_position_embeddings":131072,"model_type":"ernie4_5",
         "num_attention_heads":16,"num_hidden_layers":18,"num_key_value_heads":2,"pad_token_id":0,"rms_norm_eps":1e-05,
         "rope_scaling":null,"rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_bias":false,
         "vocab_size":103424})",
     360'748'032, 1},
    {"Glm_4_9B_0414",
     R"({"architectures":["Glm4ForCausalLM"],"attention_bias":true,"attention_dropout":0.0,"eos_token_id":[151329,151336,151338],
         "head_dim":128,"hidden_act":"silu","hidden_size":4096,"intermediate_size":13696,"max_position_embeddings":32768,
         "model_type":"glm4","num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":2,
         "pad_token_id":151329,"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,"rope_theta":10000.0,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":151552})",
     9'400'279'040, 1},
    {"Qwen1_5_MoE_A2_7B",
     R"({"architectures":["Qwen2MoeForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,"decoder_sparse_step":1,
         "eos_token_id":151643,"hidden_act":"silu","hidden_size":2048,"intermediate_size":5632,"max_position_embeddings":8192,
         "max_window_layers":21,"model_type":"qwen2_moe","moe_intermediate_size":1408,"norm_topk_prob":false,
         "num_attention_heads":16,"num_experts":60,"num_experts_per_tok":4,"num_hidden_layers":24,"num_key_value_heads":16,
         "rms_norm_eps":1e-06,"rope_theta":1000000.0,"shared_expert_intermediate_size":5632,"sliding_window":32768,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","use_sliding_window":false,"vocab_size":151936})",
     14'315'784'192, 1},
    {"Ernie_4_5_21B_A3B",
     R"({"architectures":["Ernie4_5_MoeForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":2560,
         "intermediate_size":12288,"max_position_embeddings":131072,"model_type":"ernie4_5_moe","moe_capacity":[64,64,64],
         "moe_gate":"topk","moe_intermediate_size":1536,"moe_k":6,"moe_layer_end_index":27,"moe_layer_interval":1,
         "moe_layer_start_index":1,"moe_num_experts":64,"moe_num_shared_experts":2,"moe_use_aux_free":true,
         "num_attention_heads":20,"num_hidden_layers":28,"num_key_value_heads":4,"pad_token_id":0,"rms_norm_eps":1e-05,
         "rope_scaling":null,"rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_bias":false,
         "vocab_size":103424})",
     21'825'437'888, 1},
    // Published are 110 billion with the layer that only drafts tokens.
    {"Glm_4_5_Air",
     R"({"architectures":["Glm4MoeForCausalLM"],"attention_bias":true,"attention_dropout":0.0,
         "eos_token_id":[151329,151336,151338],"first_k_dense_replace":1,"head_dim":128,"hidden_act":"silu",
         "hidden_size":4096,"intermediate_size":10944,"max_position_embeddings":131072,"model_type":"glm4_moe",
         "moe_intermediate_size":1408,"n_group":1,"n_routed_experts":128,"n_shared_experts":1,"norm_topk_prob":true,
         "num_attention_heads":96,"num_experts_per_tok":8,"num_hidden_layers":46,"num_key_value_heads":8,
         "num_nextn_predict_layers":1,"pad_token_id":151329,"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,
         "rope_scaling":null,"rope_theta":1000000,"routed_scaling_factor":1.0,"tie_word_embeddings":false,"topk_group":1,
         "torch_dtype":"bfloat16","use_qk_norm":false,"vocab_size":151552})",
     106'852'251'264, 1},
    {"Glm_4_6",
     R"({"architectures":["Glm4MoeForCausalLM"],"attention_bias":true,"attention_dropout":0.0,
         "eos_token_id":[151329,151336,151338],"first_k_dense_replace":3,"head_dim":128,"hidden_act":"silu",
         "hidden_size":5120,"intermediate_size":12288,"max_position_embeddings":202752,"model_type":"glm4_moe",
         "moe_intermediate_size":1536,"n_group":1,"n_routed_experts":160,"n_shared_experts":1,"norm_topk_prob":true,
         "num_attention_heads":96,"num_experts_per_tok":8,"num_hidden_layers":92,"num_key_value_heads":8,
         "num_nextn_predict_layers":1,"pad_token_id":151329,"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,
         "rope_scaling":null,"rope_theta":1000000,"routed_scaling_factor":2.5,"tie_word_embeddings":false,"topk_group":1,
         "torch_dtype":"bfloat16","use_qk_norm":true,"vocab_size":151552})",
     352'797'829'024, 1},
    {"MiniMax_M2",
     R"({"architectures":["MiniMaxM2ForCausalLM"],"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu",
         "hidden_size":3072,"intermediate_size":1536,"max_position_embeddings":196608,"model_type":"minimax_m2",
         "mtp_transformer_layers":1,"num_attention_heads":48,"num_experts_per_tok":8,"num_hidden_layers":62,
         "num_key_value_heads":8,"num_local_experts":256,"num_mtp_modules":3,"qk_norm_type":"per_layer",
         "rms_norm_eps":1e-06,"rope_theta":5000000,"rotary_dim":64,"scoring_func":"sigmoid","shared_intermediate_size":0,
         "tie_word_embeddings":false,"use_mtp":true,"use_qk_norm":true,"use_routing_bias":true,"vocab_size":200064})",
     228'689'764'864, 1},
    {"Starcoder2_3B",
     R"({"architectures":["Starcoder2ForCausalLM"],"bos_token_id":0,"eos_token_id":0,"hidden_act":"gelu_pytorch_tanh",
         "hidden_size":3072,"intermediate_size":12288,"max_position_embeddings":16384,"mlp_type":"default",
         "model_type":"starcoder2","norm_epsilon":1e-05,"norm_type":"layer_norm","num_attention_heads":24,
         "num_hidden_layers":30,"num_key_value_heads":2,"rope_theta":999999.4420358813,"sliding_window":4096,
         "torch_dtype":"bfloat16","use_bias":true,"vocab_size":49152})",
     3'030'371'328, 1},
    {"SmolLM3_3B",
     R"({"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,"eos_token_id":128012,"hidden_act":"silu",
         "hidden_size":2048,"intermediate_size":11008,"max_position_embeddings":65536,"max_window_layers":28,"mlp_bias":false,
         "model_type":"smollm3","no_rope_layer_interval":4,"num_attention_heads":16,"num_hidden_layers":36,
         "num_key_value_heads":4,"pretraining_tp":2,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":5000000.0,
         "sliding_window":null,"torch_dtype":"bfloat16","use_sliding_window":false,"vocab_size":128256})",
     3'075'098'624, 1},
};

TEST(PublishedModels, are_read_and_have_the_parameters_that_are_published) {
  for (const PublishedModel& model : kPublished) {
    SCOPED_TRACE(model.name);
    const auto spec = parse_model_spec(model.config, model.name);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->n_parameters(), model.n_parameters);
    EXPECT_EQ(spec->n_groups(), model.n_groups);
    std::int64_t n = 0;
    for (const ExpectedTensor& tensor : expected_tensors(*spec)) n += tensor.shape.n_elements();
    EXPECT_EQ(n, model.n_parameters);
  }
}

}  // namespace
}  // namespace baton
