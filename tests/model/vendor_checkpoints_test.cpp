/// Checkpoints with the names, shapes (scaled down) and configurations of published ones load in the schemes that their configurations
/// state, matrix by matrix; their values are drawn.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/changed_checkpoint.h"
#include "support/quantised_tensors.h"

namespace baton {
namespace {

using test::QuantisedForm;
using test::TensorToWrite;
using FormKind = QuantisedForm::Kind;
using Scales = QuantisedForm::Scales;

constexpr std::int64_t kWidth = 256, kHidden = 384, kHeads = 4, kKvHeads = 2, kHeadDim = 64, kVocab = 32, kExperts = 4;
constexpr QuantisedForm kDense{.kind = FormKind::dense};

/// What of a model is stored how.
struct Vendor {
  const char* architecture;
  const char* quantization;  ///< of config.json, or nothing
  QuantisedForm attention, feed_forward;
  WeightScheme attention_scheme, feed_forward_scheme;
  float first_value;      ///< of the quantised matrices
  const char* file = "";  ///< beside config.json
  const char* file_text = "";
  std::string root = "model.";
  std::vector<std::string> other_parts = {};  ///< of quantised matrices: a float32 scalar each
};

bool has_experts(const Vendor& vendor) {
  const std::string_view name = vendor.architecture;
  return name == "Qwen3MoeForCausalLM" || name == "MixtralForCausalLM" || name == "MiniMaxM2ForCausalLM" ||
         name == "Glm4MoeForCausalLM";
}

json::Value config_of(const Vendor& vendor) {
  json::Value config = {{"vocab_size", kVocab},
                        {"hidden_size", kWidth},
                        {"intermediate_size", kHidden},
                        {"moe_intermediate_size", kHidden},
                        {"num_hidden_layers", 1},
                        {"num_attention_heads", kHeads},
                        {"num_key_value_heads", kKvHeads},
                        {"head_dim", kHeadDim},
                        {"num_local_experts", kExperts},
                        {"n_routed_experts", kExperts},
                        {"first_k_dense_replace", 0},
                        {"num_experts_per_tok", 2},
                        {"max_position_embeddings", 256},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 1e6},
                        {"sliding_window", nullptr},
                        {"tie_word_embeddings", false},
                        {"torch_dtype", "bfloat16"}};
  if (!has_experts(vendor))
    for (const char* key : {"num_local_experts", "n_routed_experts"}) config.erase(key);
  if (vendor.root != "model.") {
    config["model_type"] = "mistral";
    config = {{"text_config", config}, {"torch_dtype", "bfloat16"}, {"vision_config", {{"hidden_size", 16}}}};
  }
  config["architectures"] = {vendor.architecture};
  const std::string quantization = vendor.quantization;
  if (!quantization.empty()) config["quantization_config"] = json::parse(quantization, "the test").value();
  return config;
}

std::vector<TensorToWrite> tensors_of(const Vendor& vendor) {
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& stem, std::int64_t n, std::int64_t k, const QuantisedForm& form) {
    test::add_matrix(stem, n, k, form, tensors);
    if (form.kind == FormKind::dense) return;
    for (const std::string& part : vendor.other_parts)
      tensors.push_back(test::filled(stem + "." + part, "F32", {}, std::string_view("\0\0\0\x3f", 4)));
  };
  const auto add_norm = [&](const std::string& stem, std::int64_t n) {
    tensors.push_back(test::filled(stem + ".weight", "BF16", {n}, "\x80\x3f"));
  };
  const std::string layer = vendor.root + "layers.0.";
  const std::string name = vendor.architecture;
  add(layer + "self_attn.q_proj", kHeads * kHeadDim, kWidth, vendor.attention);
  add(layer + "self_attn.k_proj", kKvHeads * kHeadDim, kWidth, vendor.attention);
  add(layer + "self_attn.v_proj", kKvHeads * kHeadDim, kWidth, vendor.attention);
  add(layer + "self_attn.o_proj", kWidth, kHeads * kHeadDim, vendor.attention);
  const bool is_minimax = name == "MiniMaxM2ForCausalLM";
  const bool is_mixtral = is_minimax || name == "MixtralForCausalLM";
  const std::string block = layer + (is_mixtral ? "block_sparse_moe." : "mlp.");
  const auto add_block = [&](const std::string& stem) {
    add(stem + (is_mixtral ? "w1" : "gate_proj"), kHidden, kWidth, vendor.feed_forward);
    add(stem + (is_mixtral ? "w3" : "up_proj"), kHidden, kWidth, vendor.feed_forward);
    add(stem + (is_mixtral ? "w2" : "down_proj"), kWidth, kHidden, vendor.feed_forward);
  };
  if (has_experts(vendor)) {
    add(block + "gate", kExperts, kWidth, kDense);
    for (std::int64_t e = 0; e < kExperts; ++e) add_block(block + "experts." + std::to_string(e) + ".");
    if (name == "Glm4MoeForCausalLM") add_block(block + "shared_experts.");
    const std::string bias = is_minimax ? "e_score_correction_bias" : "gate.e_score_correction_bias";
    if (is_minimax || name == "Glm4MoeForCausalLM")
      tensors.push_back(test::filled(block + bias, "F32", {kExperts}, std::string_view("\0\0\0\x3f", 4)));
  } else {
    add_block(block);
  }
  if (name.starts_with("Qwen3"))
    for (const char* norm : {"self_attn.q_norm", "self_attn.k_norm"}) add_norm(layer + norm, kHeadDim);
  if (is_minimax) {
    add_norm(layer + "self_attn.q_norm", kHeads * kHeadDim);
    add_norm(layer + "self_attn.k_norm", kKvHeads * kHeadDim);
  }
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add_norm(layer + norm, kWidth);
  add_norm(vendor.root + "norm", kWidth);
  add(vendor.root + "embed_tokens", kVocab, kWidth, kDense);
  add(vendor.root.starts_with("language_model.") ? "language_model.lm_head" : "lm_head", kVocab, kWidth, kDense);
  return tensors;
}

void expect_loads(const Vendor& vendor, const std::function<void(test::ChangedCheckpoint&)>& change = {}) {
  test::ChangedCheckpoint checkpoint;
  checkpoint.config = config_of(vendor);
  checkpoint.tensors = tensors_of(vendor);
  if (change) change(checkpoint);
  const std::string file = vendor.file;
  if (!file.empty()) checkpoint.write(file, vendor.file_text);
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const LayerWeights& layer = weights->layers[0];
  EXPECT_EQ(layer.qkv.weight().scheme, vendor.attention_scheme);
  EXPECT_EQ(layer.attention_out.weight().scheme, vendor.attention_scheme);
  EXPECT_EQ(weights->lm_head.weight().scheme, WeightScheme::dense);
  if (has_experts(vendor)) {
    EXPECT_EQ(layer.router.weight().scheme, WeightScheme::dense);
    EXPECT_EQ(layer.expert_up.weights().scheme, vendor.feed_forward_scheme);
    for (std::size_t e = 0; e < static_cast<std::size_t>(kExperts); ++e)
      EXPECT_EQ(test::values_of(layer.expert_down.weights(), e)[0], vendor.first_value);
  } else {
    EXPECT_EQ(test::values_of(layer.down.weight())[0], vendor.first_value);
  }
  if (vendor.attention.kind != FormKind::dense && vendor.attention.kind == vendor.feed_forward.kind) {
    EXPECT_EQ(test::values_of(layer.attention_out.weight())[0], vendor.first_value);
  }
  if (!layer.up.is_empty()) {  // of all rows, also a shared expert's
    EXPECT_EQ(layer.up.weight().scheme, vendor.feed_forward_scheme);
  }
  if (std::string_view(vendor.architecture) == "MiniMaxM2ForCausalLM") return;  // cannot be split
  const auto halves = checkpoint.load({0, 2});
  EXPECT_TRUE(halves) << halves.error().message;
}

// The first byte of all values is 0x12, and all scales are 2.
constexpr float kF8 = 2 * 0.0390625f, kI4 = 2 * (2 - 8), kF4 = 2 * 1;

constexpr const char* kQwenFp8 =
    R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8","weight_block_size":[128,128],)"
    R"("modules_to_not_convert":["lm_head","model.layers.0.input_layernorm","model.layers.0.mlp.gate"]})";
constexpr QuantisedForm kBlocks{.kind = FormKind::f8,
                                .scales = Scales::group,
                                .group = 128,
                                .block_rows = 128,
                                .scale_dtype = "BF16",
                                .scale_name = "weight_scale_inv"};
constexpr QuantisedForm kRowForm{.kind = FormKind::f8, .scales = Scales::row, .scale_dtype = "BF16"};
constexpr QuantisedForm kTensor{.kind = FormKind::f8, .scales = Scales::tensor, .scale_dtype = "F32"};
constexpr QuantisedForm kPacked{
    .kind = FormKind::packed, .scales = Scales::group, .bits = 4, .group = 128, .has_shape = true, .scale_dtype = "BF16"};

// Qwen/Qwen3-8B-FP8.
TEST(VendorCheckpoints, qwen3_in_blocks_of_float8) {
  expect_loads({"Qwen3ForCausalLM", kQwenFp8, kBlocks, kBlocks, WeightScheme::f8, WeightScheme::f8, kF8});
}

// Qwen/Qwen3-30B-A3B-FP8: a tensor for each expert. Scales in each type that published files have.
TEST(VendorCheckpoints, experts_of_qwen3_in_blocks_of_float8) {
  for (const char* dtype : {"F32", "BF16", "F16", "F8_E8M0"}) {
    QuantisedForm form = kBlocks;
    form.scale_dtype = dtype;
    expect_loads({"Qwen3MoeForCausalLM", kQwenFp8, form, form, WeightScheme::f8, WeightScheme::f8, kF8});
  }
}

// RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic.
TEST(VendorCheckpoints, float8_with_dynamic_activations) {
  expect_loads({"LlamaForCausalLM",
                R"({"config_groups":{"group_0":{"input_activations":{"actorder":null,"block_structure":null,"dynamic":true,
                    "group_size":null,"num_bits":8,"observer":"memoryless","observer_kwargs":{},"strategy":"token",
                    "symmetric":true,"type":"float"},"output_activations":null,"targets":["Linear"],"weights":{
                    "block_structure":null,"dynamic":false,"group_size":null,"num_bits":8,"observer":"minmax",
                    "observer_kwargs":{},"strategy":"channel","symmetric":true,"type":"float"}}},"format":"float-quantized",
                    "global_compression_ratio":1.2372,"ignore":["lm_head"],"kv_cache_scheme":null,
                    "quant_method":"compressed-tensors","quantization_status":"frozen","sparsity_config":{
                    "format":"dense","global_sparsity":0.13,"ignore":[],"registry_requires_subclass":false,
                    "sparsity_structure":"0:0","targets":[]}})",
                kRowForm, kRowForm, WeightScheme::f8, WeightScheme::f8, kF8});
}

// MiniMaxAI/MiniMax-M2.
TEST(VendorCheckpoints, experts_of_minimax_m2_in_blocks_of_float8) {
  QuantisedForm form = kBlocks;
  form.scale_dtype = "F32";
  expect_loads({"MiniMaxM2ForCausalLM",
                R"({"activation_scheme":"dynamic","fmt":"float8_e4m3fn","quant_method":"fp8","weight_block_size":[128,128],
                    "modules_to_not_convert":["gate","e_score_correction_bias","lm_head"]})",
                form, form, WeightScheme::f8, WeightScheme::f8, kF8});
}

// zai-org/GLM-4.5-Air-FP8, whose layer for drafting is quantised, too.
TEST(VendorCheckpoints, experts_of_glm_in_float8_beside_a_layer_that_is_not_loaded) {
  expect_loads({"Glm4MoeForCausalLM",
                R"({"config_groups":{"group_0":{"input_activations":{"dynamic":true,"num_bits":8,"strategy":"token",
                    "symmetric":true,"type":"float"},"output_activations":null,"targets":["Linear"],"weights":{
                    "dynamic":false,"num_bits":8,"observer":"minmax","strategy":"channel","symmetric":true,
                    "type":"float"}}},"format":"float-quantized","ignore":["lm_head","model.layers.0.mlp.gate",
                    "model.layers.1.eh_proj"],"kv_cache_scheme":null,"quant_method":"compressed-tensors",
                    "quantization_status":"compressed"})",
                kRowForm, kRowForm, WeightScheme::f8, WeightScheme::f8, kF8},
               [](test::ChangedCheckpoint& checkpoint) {
                 test::add_matrix("model.layers.1.eh_proj", kWidth, 2 * kWidth, kDense, checkpoint.tensors);
                 test::add_matrix("model.layers.1.mlp.shared_experts.up_proj", kHidden, kWidth, kRowForm, checkpoint.tensors);
               });
}

// RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16.
TEST(VendorCheckpoints, int4_in_groups) {
  expect_loads({"LlamaForCausalLM",
                R"({"config_groups":{"group_0":{"input_activations":null,"output_activations":null,"targets":["Linear"],
                    "weights":{"actorder":"weight","block_structure":null,"dynamic":false,"group_size":128,"num_bits":4,
                    "observer":"mse","observer_kwargs":{},"strategy":"group","symmetric":true,"type":"int"}}},
                    "format":"pack-quantized","ignore":["lm_head"],"kv_cache_scheme":null,
                    "quant_method":"compressed-tensors","quantization_status":"compressed"})",
                kPacked, kPacked, WeightScheme::i4, WeightScheme::i4, kI4});
}

// As moonshotai/Kimi-K2-Thinking: experts alone, in groups of 32, the size as 32-bit integers.
TEST(VendorCheckpoints, experts_in_int4_beside_dense_attention) {
  QuantisedForm form = kPacked;
  form.group = 32;
  const auto has_short_shapes = [](test::ChangedCheckpoint& checkpoint) {
    for (TensorToWrite& tensor : checkpoint.tensors)
      if (tensor.name.ends_with("weight_shape")) {
        tensor.dtype = "I32";
        tensor.bytes = tensor.bytes.substr(0, 4) + tensor.bytes.substr(8, 4);
      }
  };
  expect_loads({"Qwen3MoeForCausalLM",
                R"({"config_groups":{"group_0":{"input_activations":null,"output_activations":null,"targets":["Linear"],
                    "weights":{"actorder":null,"block_structure":null,"dynamic":false,"group_size":32,"num_bits":4,
                    "observer":"minmax","observer_kwargs":{},"strategy":"group","symmetric":true,"type":"int"}}},
                    "format":"pack-quantized","ignore":["lm_head","re:.*self_attn.*","re:.*shared_experts.*",
                    "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],"kv_cache_scheme":null,
                    "quant_method":"compressed-tensors","quantization_status":"compressed"})",
                kDense, form, WeightScheme::dense, WeightScheme::i4, kI4},
               has_short_shapes);
}

// Mistral's names, inside a model that also takes images.
TEST(VendorCheckpoints, mistrals_float8_with_static_activations) {
  QuantisedForm form = kTensor;
  form.scale_dtype = "BF16";
  form.scale_name = "weight_scale_inv";
  const char* const quantization =
      R"({"activation_scheme":"static","dequantize":false,"modules_to_not_convert":["model.vision_tower",
          "model.multi_modal_projector","lm_head"],"quant_method":"fp8","weight_block_size":null})";
  for (const char* root : {"language_model.model.", "model.language_model."}) {
    Vendor vendor{"Mistral3ForConditionalGeneration", quantization, form, form, WeightScheme::f8, WeightScheme::f8, kF8};
    vendor.root = root;
    vendor.other_parts = {"activation_scale"};
    expect_loads(vendor);
  }
  form.scale_name = "qscale_weight";
  Vendor native{"MistralForCausalLM", quantization, form, form, WeightScheme::f8, WeightScheme::f8, kF8};
  native.other_parts = {"qscale_act"};
  expect_loads(native);
}

// neuralmagic/Mixtral-8x7B-Instruct-v0.1-FP8.
TEST(VendorCheckpoints, experts_of_mixtral_with_a_scale_for_the_tensor) {
  Vendor vendor{"MixtralForCausalLM",
                R"({"activation_scheme":"static","ignored_layers":["lm_head","model.layers.0.block_sparse_moe.gate"],
                    "quant_method":"fp8"})",
                kTensor,
                kTensor,
                WeightScheme::f8,
                WeightScheme::f8,
                kF8};
  vendor.other_parts = {"input_scale"};
  expect_loads(vendor);
}

// nvidia/Llama-3.1-8B-Instruct-FP8, whose config.json says nothing in older revisions.
TEST(VendorCheckpoints, nvidias_float8_with_a_file_of_its_own) {
  Vendor vendor{"LlamaForCausalLM", "", kTensor, kTensor, WeightScheme::f8, WeightScheme::f8, kF8};
  vendor.file = "hf_quant_config.json";
  vendor.file_text = R"({"producer":{"name":"modelopt","version":"0.23.0"},"quantization":{"quant_algo":"FP8",
                         "kv_cache_quant_algo":"FP8","exclude_modules":["lm_head"]}})";
  vendor.other_parts = {"input_scale", "k_scale"};
  expect_loads(vendor);
}

// TheBloke's repositories of 2023: the file beside config.json alone says what the weights are.
TEST(VendorCheckpoints, older_gptq_and_awq_with_files_of_their_own) {
  Vendor gptq{"LlamaForCausalLM", "", {}, {}, WeightScheme::i4, WeightScheme::i4, kI4};
  gptq.attention = gptq.feed_forward = {
      .kind = FormKind::gptq, .scales = Scales::group, .group = 128, .has_groups = true, .scale_dtype = "F16"};
  gptq.file = "quantize_config.json";
  gptq.file_text = R"({"bits":4,"group_size":128,"damp_percent":0.1,"desc_act":false,"sym":true,"true_sequential":true,
                       "model_name_or_path":null,"model_file_base_name":"model"})";
  expect_loads(gptq);
  Vendor awq{"LlamaForCausalLM", "", {}, {}, WeightScheme::i4, WeightScheme::i4, 2 * (2 - 6)};
  awq.attention = awq.feed_forward = {
      .kind = FormKind::awq, .scales = Scales::group, .group = 128, .has_zeros = true, .scale_dtype = "F16"};
  awq.file = "quant_config.json";
  awq.file_text = R"({"zero_point":true,"q_group_size":128,"w_bit":4,"version":"GEMM"})";
  expect_loads(awq);
}

TEST(VendorCheckpoints, groups_of_modules_in_two_formats) {
  expect_loads({"LlamaForCausalLM",
                R"({"config_groups":{"group_0":{"format":"float-quantized","targets":["re:.*self_attn.*"],"weights":{
                    "num_bits":8,"strategy":"channel","symmetric":true,"type":"float","dynamic":false}},
                    "group_1":{"format":"pack-quantized","targets":["re:.*mlp.*"],"weights":{"group_size":128,"num_bits":4,
                    "strategy":"group","symmetric":true,"type":"int","dynamic":false}}},"format":"mixed-precision",
                    "ignore":["lm_head"],"quant_method":"compressed-tensors","quantization_status":"compressed"})",
                kRowForm, kPacked, WeightScheme::f8, WeightScheme::i4, kI4});
}

TEST(VendorCheckpoints, float8_with_exponents_for_32_columns) {
  const QuantisedForm form{.kind = FormKind::f8, .scales = Scales::group, .group = 32, .block_rows = 1, .scale_dtype = "U8"};
  expect_loads({"LlamaForCausalLM",
                R"({"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"strategy":"group","group_size":32,
                    "symmetric":true,"type":"float","dynamic":false,"scale_dtype":"torch.uint8"}}},"format":"mxfp8-quantized",
                    "ignore":["lm_head"],"quant_method":"compressed-tensors","quantization_status":"compressed"})",
                form, form, WeightScheme::f8, WeightScheme::f8, kF8});
}

// One tensor for all experts, as newer files of other architectures have them.
TEST(VendorCheckpoints, experts_in_one_tensor_are_refused_by_name) {
  test::ChangedCheckpoint checkpoint;
  const Vendor vendor{"Qwen3MoeForCausalLM", kQwenFp8, kBlocks, kBlocks, WeightScheme::f8, WeightScheme::f8, kF8};
  checkpoint.config = config_of(vendor);
  checkpoint.tensors = tensors_of(vendor);
  std::erase_if(checkpoint.tensors,
                [](const TensorToWrite& tensor) { return tensor.name.find(".experts.") != std::string::npos; });
  checkpoint.tensors.push_back(
      test::filled("model.layers.0.mlp.experts.gate_up_proj", "F8_E4M3", {kExperts, 2 * kHidden, kWidth}, "\x12"));
  EXPECT_EQ(
      checkpoint.error(),
      "tensor 'model.layers.0.mlp.experts.gate_up_proj' holds a matrix of all experts, which is not supported; a tensor for "
      "each expert is ('model.layers.0.mlp.experts.0.gate_proj.weight')");
}

// RedHatAI/Llama-3.1-8B-Instruct-NVFP4, whose activations are quantised in other engines, and the same of MXFP4.
TEST(VendorCheckpoints, llama_in_floats_of_4_bits_of_compressed_tensors) {
  const std::string nvfp4 =
      R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized","quantization_status":"compressed",)"
      R"("config_groups":{"group_0":{"format":"nvfp4-pack-quantized","targets":["Linear"],"output_activations":null,)"
      R"("input_activations":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"dynamic":"local"},)"
      R"("weights":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"symmetric":true,)"
      R"("dynamic":false,"scale_dtype":"torch.float8_e4m3fn","zp_dtype":"torch.float8_e4m3fn"}}},)"
      R"("ignore":["lm_head"],"kv_cache_scheme":null})";
  constexpr QuantisedForm form{.kind = FormKind::nvfp4};
  Vendor vendor{"LlamaForCausalLM", nvfp4.c_str(), form, form, WeightScheme::f4, WeightScheme::f4, kF4};
  vendor.other_parts = {"input_global_scale"};
  expect_loads(vendor);
  const std::string mxfp4 =
      R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized","config_groups":{"group_0":{"targets":["Linear"],)"
      R"("weights":{"num_bits":4,"type":"float","strategy":"group","group_size":32,"scale_dtype":"torch.uint8"}}}})";
  for (const std::string_view scales : {"U8", "F8_E8M0"}) {
    const QuantisedForm exponents{.kind = FormKind::mxfp4, .scale_dtype = scales};
    expect_loads({"LlamaForCausalLM", mxfp4.c_str(), exponents, exponents, WeightScheme::f4, WeightScheme::f4, kF4});
  }
}

// nvidia/Qwen3-30B-A3B-NVFP4: a tensor for each expert.
TEST(VendorCheckpoints, experts_in_nvfp4_of_modelopt) {
  constexpr QuantisedForm form{.kind = FormKind::modelopt_nvfp4};
  Vendor vendor{"Qwen3MoeForCausalLM", "", form, form, WeightScheme::f4, WeightScheme::f4, kF4};
  vendor.file = "hf_quant_config.json";
  vendor.file_text = R"({"producer":{"name":"modelopt","version":"0.33.0"},"quantization":{"quant_algo":"NVFP4",)"
                     R"("kv_cache_quant_algo":"FP8","group_size":16,"exclude_modules":["lm_head","model.layers.0.mlp.gate"]}})";
  vendor.other_parts = {"input_scale"};
  expect_loads(vendor);
}

// nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8: attention, convolutions and routers stay dense.
TEST(VendorCheckpoints, mamba2_and_experts_of_nemotron_in_float8_beside_dense_attention) {
  test::ChangedCheckpoint checkpoint;
  checkpoint.config = json::parse(R"({"architectures":["NemotronHForCausalLM"],"hidden_size":256,"vocab_size":32,
      "hybrid_override_pattern":"M*E","num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,"mamba_num_heads":4,
      "mamba_head_dim":64,"n_groups":2,"ssm_state_size":32,"n_routed_experts":4,"num_experts_per_tok":2,
      "moe_intermediate_size":384,"moe_shared_expert_intermediate_size":384,"torch_dtype":"bfloat16",
      "quantization_config":{"quant_method":"modelopt","quant_algo":"FP8","kv_cache_scheme":{"dynamic":false,"num_bits":8,
      "type":"float"},"ignore":["lm_head","backbone.layers.1.mixer.*","backbone.layers.0.mixer.conv1d"]}})",
                                  "the test")
                          .value();
  const auto add = [&](const std::string& stem, std::int64_t n, std::int64_t k, const QuantisedForm& form) {
    test::add_matrix("backbone." + stem, n, k, form, checkpoint.tensors);
    if (form.kind == FormKind::dense) return;
    checkpoint.tensors.push_back(
        test::filled("backbone." + stem + ".input_scale", "F32", {}, std::string_view("\0\0\0\x3f", 4)));
  };
  const auto add_vector = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    checkpoint.tensors.push_back(test::filled("backbone." + name, "BF16", shape, "\x80\x3f"));
  };
  constexpr std::int64_t kChannels = 256 + 2 * 2 * 32;
  add("layers.0.mixer.in_proj", 256 + kChannels + 4, kWidth, kTensor);
  add("layers.0.mixer.out_proj", kWidth, 256, kTensor);
  add_vector("layers.0.mixer.conv1d.weight", {kChannels, 1, 4});
  add_vector("layers.0.mixer.conv1d.bias", {kChannels});
  add_vector("layers.0.mixer.norm.weight", {256});
  for (const char* of_heads : {"A_log", "D", "dt_bias"}) add_vector(std::string("layers.0.mixer.") + of_heads, {4});
  add("layers.1.mixer.q_proj", 256, kWidth, kDense);
  for (const char* name : {"k_proj", "v_proj"}) add(std::string("layers.1.mixer.") + name, 128, kWidth, kDense);
  add("layers.1.mixer.o_proj", kWidth, 256, kDense);
  add("layers.2.mixer.gate", 4, kWidth, kDense);
  add_vector("layers.2.mixer.gate.e_score_correction_bias", {4});
  for (const char* block : {"experts.0", "experts.1", "experts.2", "experts.3", "shared_experts"}) {
    add(std::string("layers.2.mixer.") + block + ".up_proj", kHidden, kWidth, kTensor);
    add(std::string("layers.2.mixer.") + block + ".down_proj", kWidth, kHidden, kTensor);
  }
  for (const char* norm : {"layers.0.norm", "layers.1.norm", "layers.2.norm", "norm_f"})
    add_vector(std::string(norm) + ".weight", {kWidth});
  add("embeddings", kVocab, kWidth, kDense);
  test::add_matrix("lm_head", kVocab, kWidth, kDense, checkpoint.tensors);
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<LayerWeights>& layers = weights->layers;
  EXPECT_EQ(layers[0].recurrent_in.weight().scheme, WeightScheme::f8);
  EXPECT_EQ(test::values_of(layers[0].attention_out.weight())[0], kF8);
  EXPECT_EQ(layers[1].qkv.weight().scheme, WeightScheme::dense);
  EXPECT_EQ(test::values_of(layers[2].expert_down.weights(), 3)[0], kF8);
  EXPECT_EQ(layers[2].up.weight().scheme, WeightScheme::f8);
  EXPECT_EQ(layers[2].router.weight().scheme, WeightScheme::dense);
}

}  // namespace
}  // namespace baton
