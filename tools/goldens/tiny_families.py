"""The tiny checkpoints of the families other than Llama. Windows are shorter than the prompt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .tiny_models import BOTH_SIDES, N_VOCAB, Golden, TinyModel, write_tiny_model

_WINDOW = 21


def config_of(architecture: str, model_type: str, heads: tuple[int, int, int], **fields: object) -> dict:
    """config.json of an architecture with `heads`: query heads, KV heads, head size."""
    n_heads, n_kv_heads, head_dim = heads
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": N_VOCAB,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
        **fields,
    }


_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}

# What all models with latent attention have here. The rotated elements and the ranks of keys are those of kernels for GPUs.
_LATENT = {
    "hidden_size": 64,
    "qk_rope_head_dim": 64,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
_DEEPSEEK_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}

# Recurrent layers, and attention in every fourth one. The heads are those of kernels for GPUs.
_DELTA = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}
_DELTA_EXPERTS = {
    **_DELTA,
    "num_hidden_layers": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}


def _sections(rotary_dim: int) -> dict:
    """The rotation of models that also take images, of a quarter of a head."""
    third = rotary_dim // 6
    return {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [rotary_dim // 2 - 2 * third, third, third],
    }


# Both sides of an edge of the chunks that Transformers computes in, and many of them.
ROUND_CHUNKS = tuple(
    Golden(f"golden{end}.safetensors", n) for end, n in (("", 65), ("_one", 1), ("_63", 63), ("_64", 64), ("_long", 700))
)

# Models with experts have short prompts, because each row is a chance of a choice that bf16 makes otherwise.
FEW_ROWS = (Golden(n_prompt=24),)
MANY_SEEDS = 2000

TINY_FAMILIES = (
    TinyModel(
        "mistral_tiny_window",
        config_of("MistralForCausalLM", "mistral", (2, 1, 64), **_ROPE, sliding_window=_WINDOW),
    ),
    TinyModel(
        "ministral_tiny_types",
        config_of(
            "MinistralForCausalLM",
            "ministral",
            (2, 1, 64),
            **_ROPE,
            num_hidden_layers=3,
            sliding_window=_WINDOW,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
    TinyModel(
        "ministral3_tiny_query_scale",
        config_of(
            "Ministral3ForCausalLM",
            "ministral3",
            (2, 1, 64),
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1000000.0,
                "factor": 10.0,
                "original_max_position_embeddings": 24,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.5,
            },
            sliding_window=None,
        ),
    ),
    TinyModel(
        "qwen2_tiny_windows",
        config_of(
            "Qwen2ForCausalLM",
            "qwen2",
            (2, 1, 128),
            rope_theta=1000000.0,
            use_sliding_window=True,
            sliding_window=_WINDOW,
            max_window_layers=1,
        ),
        first_seed=2,  # a row of seed 1 in bf16 is close to the bound of decoder_test
    ),
    TinyModel(
        "mixtral_tiny_experts",
        config_of(
            "MixtralForCausalLM",
            "mixtral",
            (2, 1, 64),
            hidden_size=64,
            intermediate_size=96,
            rope_theta=1000000.0,
            sliding_window=None,
            num_local_experts=4,
            num_experts_per_tok=2,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "qwen3_next_tiny_heads",
        config_of(
            "Qwen3NextForCausalLM",
            "qwen3_next",
            (2, 1, 64),
            **_DELTA_EXPERTS,
            rope_parameters={"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            attention_bias=True,
            full_attention_interval=2,
        ),
        goldens=(Golden(n_prompt=12),),
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "qwen3_5_tiny_chunks",
        config_of(
            "Qwen3_5ForCausalLM",
            "qwen3_5_text",
            (2, 1, 256),
            **_DELTA,
            rope_parameters=_sections(64),
            linear_num_key_heads=1,
            linear_num_value_heads=3,
        ),
        # A single token's state is read by its own query: the norm after it magnifies what bf16 rounds where query and key
        # are nearly orthogonal. With this id they are not, in any layer.
        goldens=tuple(replace(golden, first_id=273) if golden.n_prompt == 1 else golden for golden in ROUND_CHUNKS),
        first_seed=4,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "qwen3_5_moe_tiny_types",
        config_of(
            "Qwen3_5MoeForCausalLM",
            "qwen3_5_moe_text",
            (2, 2, 64),
            **_DELTA_EXPERTS,
            rope_parameters=_sections(16),
            linear_num_key_heads=1,
            linear_num_value_heads=2,
            layer_types=["full_attention", "linear_attention"],
        ),
        goldens=(Golden(n_prompt=12),),
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "qwen3_moe_tiny_shares",
        config_of(
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            (2, 1, 64),
            hidden_size=64,
            rope_theta=1000000.0,
            moe_intermediate_size=32,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=False,
            mlp_only_layers=[0],
        ),
        goldens=(Golden(n_prompt=14),),
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "qwen3_moe_tiny_sparse_steps",
        config_of(
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            (2, 1, 128),
            hidden_size=64,
            **_ROPE,
            use_sliding_window=True,
            sliding_window=_WINDOW,
            decoder_sparse_step=2,
            moe_intermediate_size=96,
            num_local_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=True,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "qwen2_moe_tiny_shared",
        config_of(
            "Qwen2MoeForCausalLM",
            "qwen2_moe",
            (2, 1, 64),
            hidden_size=64,
            rope_theta=1000000.0,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=64,
            num_experts=8,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            mlp_only_layers=[0],
            tie_word_embeddings=False,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "glm4_moe_tiny_groups",
        config_of(
            "Glm4MoeForCausalLM",
            "glm4_moe",
            (2, 1, 64),
            hidden_size=64,
            num_hidden_layers=3,
            rope_theta=1000000.0,
            partial_rotary_factor=0.5,
            attention_bias=True,
            use_qk_norm=True,
            first_k_dense_replace=1,
            moe_intermediate_size=32,
            n_routed_experts=8,
            n_shared_experts=2,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
            n_group=4,
            topk_group=2,
            num_nextn_predict_layers=1,
            tie_word_embeddings=False,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "glm4_moe_lite_tiny_dense_first",
        config_of(
            "Glm4MoeLiteForCausalLM",
            "glm4_moe_lite",
            (2, 2, 64),
            **_LATENT,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 1.0},
            q_lora_rank=48,
            kv_lora_rank=512,
            qk_nope_head_dim=48,
            v_head_dim=80,
            num_hidden_layers=3,
            mlp_layer_types=["dense", "sparse", "sparse"],
            n_shared_experts=1,
            norm_topk_prob=True,
            routed_scaling_factor=1.8,
            n_group=1,
            topk_group=1,
            rms_norm_eps=1e-5,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "deepseek_v2_tiny_lite",
        config_of(
            "DeepseekV2ForCausalLM",
            "deepseek_v2",
            (4, 4, 64),
            **_LATENT,
            rope_parameters={**_DEEPSEEK_YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
            q_lora_rank=None,
            kv_lora_rank=256,
            qk_nope_head_dim=32,
            v_head_dim=32,
            first_k_dense_replace=1,
            n_shared_experts=2,
            norm_topk_prob=False,
            routed_scaling_factor=1.0,
            topk_method="greedy",
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "deepseek_v2_tiny_groups",
        config_of(
            "DeepseekV2ForCausalLM",
            "deepseek_v2",
            (2, 2, 64),
            **_LATENT,
            # One of the two factors is of cosines alone, the other of scores, too.
            rope_parameters={**_DEEPSEEK_YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
            q_lora_rank=32,
            kv_lora_rank=256,
            qk_nope_head_dim=40,
            v_head_dim=24,
            first_k_dense_replace=0,
            n_shared_experts=1,
            norm_topk_prob=False,
            routed_scaling_factor=4.0,
            topk_method="group_limited_greedy",
            n_group=4,
            topk_group=2,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "deepseek_v3_tiny_groups",
        config_of(
            "DeepseekV3ForCausalLM",
            "deepseek_v3",
            (2, 2, 64),
            **_LATENT,
            rope_parameters={**_DEEPSEEK_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
            q_lora_rank=32,
            kv_lora_rank=512,
            qk_nope_head_dim=32,
            v_head_dim=32,
            first_k_dense_replace=1,
            n_shared_experts=1,
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            n_group=4,
            topk_group=2,
            num_nextn_predict_layers=1,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "kimi_k2_tiny_one_pair",
        config_of(
            "DeepseekV3ForCausalLM",
            "deepseek_v3",
            (4, 4, 64),
            **_LATENT,
            # With both betas alike a single pair lies between those that are kept and those that are divided.
            rope_parameters={**_DEEPSEEK_YARN, "beta_fast": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
            q_lora_rank=48,
            kv_lora_rank=256,
            qk_nope_head_dim=32,
            v_head_dim=32,
            first_k_dense_replace=1,
            n_shared_experts=1,
            norm_topk_prob=True,
            routed_scaling_factor=2.827,
            n_group=1,
            topk_group=1,
            num_nextn_predict_layers=0,
            rms_norm_eps=1e-5,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "mistral4_tiny_query_scale",
        config_of(
            "Mistral4ForCausalLM",
            "mistral4",
            (2, 2, 96),
            **_LATENT,
            rope_parameters={
                **_DEEPSEEK_YARN,
                "original_max_position_embeddings": 12,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.5,
            },
            q_lora_rank=32,
            kv_lora_rank=256,
            qk_nope_head_dim=32,
            v_head_dim=48,
            first_k_dense_replace=0,
            n_shared_experts=1,
            norm_topk_prob=True,
            routed_scaling_factor=1.0,
            n_group=1,
            topk_group=1,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "ernie4_5_moe_tiny_interval",
        config_of(
            "Ernie4_5_MoeForCausalLM",
            "ernie4_5_moe",
            (2, 1, 64),
            hidden_size=64,
            num_hidden_layers=4,
            rope_theta=500000.0,
            moe_intermediate_size=32,
            moe_num_experts=6,
            moe_k=2,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
            moe_layer_end_index=2,
            moe_layer_interval=2,
            use_bias=False,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "minimax_m2_tiny_rotary_dim",
        config_of(
            "MiniMaxM2ForCausalLM",
            "minimax_m2",
            (2, 1, 64),
            hidden_size=64,
            intermediate_size=32,
            num_local_experts=8,
            num_experts_per_tok=2,
            rope_parameters={"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.5},
            rotary_dim=32,  # what the published files have instead of the factor
            tie_word_embeddings=False,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "gpt_oss_tiny_sinks",
        config_of(
            "GptOssForCausalLM",
            "gpt_oss",
            (4, 2, 64),
            hidden_size=64,
            intermediate_size=64,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 8.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 16,
            },
            num_local_experts=6,
            num_experts_per_tok=2,
            tie_word_embeddings=False,
        ),
        goldens=(Golden(n_prompt=18),),
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "llama4_tiny_chunks",
        config_of(
            "Llama4ForCausalLM",
            "llama4_text",
            (2, 1, 64),
            hidden_size=64,
            intermediate_size=32,
            intermediate_size_mlp=80,
            num_hidden_layers=4,
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 16.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 1.0,
                "original_max_position_embeddings": 64,
            },
            num_local_experts=4,
            num_experts_per_tok=1,
            interleave_moe_layer_step=2,
            attention_chunk_size=_WINDOW,
            attn_temperature_tuning=True,
            attn_scale=0.5,
            floor_scale=12,
            tie_word_embeddings=False,
        ),
        goldens=FEW_ROWS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "phi_tiny_parallel",
        config_of("PhiForCausalLM", "phi", (2, 2, 80), rope_theta=10000.0, partial_rotary_factor=0.4, tie_word_embeddings=False),
    ),
    TinyModel(
        "phi3_tiny_fused",
        config_of("Phi3ForCausalLM", "phi3", (2, 2, 96), rope_theta=10000.0, rope_scaling=None, sliding_window=_WINDOW),
    ),
    TinyModel(
        "phi3_tiny_longrope",
        config_of(
            "Phi3ForCausalLM",
            "phi3",
            (2, 1, 64),
            hidden_size=128,
            num_hidden_layers=1,
            max_position_embeddings=320,
            original_max_position_embeddings=80,
            rope_theta=10000.0,
            partial_rotary_factor=0.75,
            rope_scaling={
                "type": "longrope",
                "short_factor": [round(1 + i / 48, 4) for i in range(24)],
                "long_factor": [round(1 + i / 3, 4) for i in range(24)],
            },
        ),
        goldens=BOTH_SIDES,
    ),
    TinyModel(
        "qwen3_tiny_norms",
        config_of(
            "Qwen3ForCausalLM",
            "qwen3",
            (2, 1, 128),
            rope_theta=1000000.0,
            attention_bias=False,
            tie_word_embeddings=False,
        ),
    ),
    TinyModel(
        "olmo2_tiny_postnorms",
        config_of("Olmo2ForCausalLM", "olmo2", (2, 2, 64), rope_theta=500000.0, attention_bias=False),
    ),
    TinyModel(
        "olmo3_tiny_two_ropes",
        config_of(
            "Olmo3ForCausalLM",
            "olmo3",
            (2, 1, 64),
            num_hidden_layers=3,
            rope_theta=500000.0,
            rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
            sliding_window=_WINDOW,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
    TinyModel(
        "exaone4_tiny_nope",
        config_of(
            "Exaone4ForCausalLM",
            "exaone4",
            (2, 1, 64),
            num_hidden_layers=3,
            rope_theta=1000000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            sliding_window=_WINDOW,
            sliding_window_pattern="LLG",
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        ),
    ),
    TinyModel(
        "seed_oss_tiny_biases",
        config_of("SeedOssForCausalLM", "seed_oss", (2, 1, 64), **_ROPE, tie_word_embeddings=False, mlp_bias=True),
    ),
    TinyModel(
        "ernie4_5_tiny_interleaved",
        config_of("Ernie4_5ForCausalLM", "ernie4_5", (2, 1, 64), rope_theta=500000.0, use_bias=True),
    ),
    TinyModel(
        "hunyuan_tiny_late_norms",
        config_of(
            "HunYuanDenseV1ForCausalLM",
            "hunyuan_v1_dense",
            (2, 1, 64),
            rope_theta=10000.0,
            rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0},
        ),
        first_seed=3,  # rows of earlier seeds in bf16 are farther from float32
    ),
    TinyModel(
        "glm4_tiny_half_rotary",
        config_of("Glm4ForCausalLM", "glm4", (2, 1, 64), rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=False),
    ),
    TinyModel(
        "starcoder2_tiny_biases",
        config_of("Starcoder2ForCausalLM", "starcoder2", (2, 1, 64), **_ROPE, sliding_window=_WINDOW),
    ),
    TinyModel(
        "granite_tiny_multipliers",
        config_of(
            "GraniteForCausalLM",
            "granite",
            (2, 1, 64),
            **_ROPE,
            tie_word_embeddings=False,
            embedding_multiplier=3.0,
            logits_scaling=8.0,
            residual_multiplier=0.6,
            attention_multiplier=0.0625,
        ),
    ),
    TinyModel(
        "smollm3_tiny_nope",
        config_of(
            "SmolLM3ForCausalLM",
            "smollm3",
            (2, 1, 64),
            num_hidden_layers=3,
            rope_theta=2000000.0,
            no_rope_layers=[1, 0, 1],
            use_sliding_window=False,
            sliding_window=None,
        ),
    ),
    TinyModel(
        "cohere2_tiny_interleaved",
        config_of(
            "Cohere2ForCausalLM",
            "cohere2",
            (1, 1, 64),
            hidden_size=64,
            num_hidden_layers=2,
            rope_theta=10000.0,
            attention_bias=True,
            tie_word_embeddings=False,
            logit_scale=0.25,
            sliding_window=_WINDOW,
            sliding_window_pattern=2,
        ),
    ),
    TinyModel(
        "gemma2_tiny_softcaps",
        config_of(
            "Gemma2ForCausalLM",
            "gemma2",
            (2, 1, 256),
            **_ROPE,
            hidden_activation="gelu_pytorch_tanh",
            query_pre_attn_scalar=64,
            sliding_window=_WINDOW,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
    ),
    TinyModel(
        "gemma3_tiny_text",
        config_of(
            "Gemma3ForCausalLM",
            "gemma3_text",
            (2, 1, 64),
            num_hidden_layers=3,
            rope_theta=1000000.0,
            rope_local_base_freq=10000.0,
            rope_scaling={"rope_type": "linear", "factor": 8.0},
            sliding_window_pattern=3,
            sliding_window=_WINDOW,
            query_pre_attn_scalar=64,
        ),
    ),
    TinyModel(
        "gemma3_tiny_images",
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "dtype": "bfloat16",
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": [2, 3],
            "mm_tokens_per_image": 1,
            "text_config": {
                key: value
                for key, value in config_of(
                    "",
                    "gemma3_text",
                    (2, 1, 64),
                    layer_types=["sliding_attention", "full_attention"],
                    rope_parameters={
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
                    },
                    sliding_window=_WINDOW,
                    query_pre_attn_scalar=48,
                ).items()
                if key not in ("architectures", "dtype", "tie_word_embeddings", "eos_token_id")
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_attention_heads": 2,
                "num_hidden_layers": 1,
                "image_size": 28,
                "patch_size": 14,
            },
        },
    ),
)


def write_tiny_families(goldens: Path) -> None:
    """Writes one folder for each of TINY_FAMILIES."""
    for tiny in TINY_FAMILIES:
        write_tiny_model(goldens, tiny)
