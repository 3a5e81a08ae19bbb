"""The tiny checkpoints with short convolutions (LFM2) or Mamba-2 layers (Granite 4, Nemotron-H)."""

from __future__ import annotations

from pathlib import Path

from .tiny_families import MANY_SEEDS, ROUND_CHUNKS, config_of
from .tiny_models import Golden, TinyModel, write_tiny_model

_LFM2 = {
    "hidden_size": 64,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 1024,
    "norm_eps": 1e-5,
}

_GRANITE = {
    "hidden_size": 64,
    "shared_intermediate_size": 48,
    "intermediate_size": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "embedding_multiplier": 3.0,
    "logits_scaling": 4.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.0625,
    "mamba_expand": 2,
    "mamba_d_conv": 4,
    "mamba_chunk_size": 64,
}

# A time step has no lower bound here: Transformers has one for prompts, but none for single tokens.
_NEMOTRON = {
    "hidden_size": 64,
    "max_position_embeddings": 1024,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "chunk_size": 64,
    "time_step_min": 1e-9,
    "mlp_hidden_act": "relu2",
    "tie_word_embeddings": False,
}

TINY_RECURRENT = (
    TinyModel(
        "lfm2_tiny_biases",
        config_of(
            "Lfm2ForCausalLM",
            "lfm2",
            (2, 1, 32),
            **_LFM2,
            num_hidden_layers=4,
            conv_bias=True,
            conv_L_cache=3,
            block_auto_adjust_ff_dim=True,
            block_ff_dim=100,
            block_ffn_dim_multiplier=1.3,
            block_multiple_of=16,
            full_attn_idxs=[1],
        ),
        goldens=ROUND_CHUNKS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "lfm2_moe_tiny_types",
        config_of(
            "Lfm2MoeForCausalLM",
            "lfm2_moe",
            (2, 2, 32),
            **_LFM2,
            num_hidden_layers=3,
            conv_L_cache=5,
            layer_types=["conv", "full_attention", "conv"],
            moe_intermediate_size=32,
            num_dense_layers=1,
            num_experts=8,
            num_experts_per_tok=2,
            use_expert_bias=True,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
        ),
        goldens=(Golden(n_prompt=12),),
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "granitemoehybrid_tiny_dense",
        config_of(
            "GraniteMoeHybridForCausalLM",
            "granitemoehybrid",
            (2, 1, 32),
            **_GRANITE,
            num_hidden_layers=4,
            layer_types=["mamba", "attention", "mamba", "mamba"],
            num_local_experts=0,
            num_experts_per_tok=0,
            tie_word_embeddings=False,
            mamba_n_heads=4,
            mamba_d_head=32,
            mamba_d_state=128,
            mamba_n_groups=1,
        ),
        goldens=ROUND_CHUNKS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "granitemoehybrid_tiny_experts",
        config_of(
            "GraniteMoeHybridForCausalLM",
            "granitemoehybrid",
            (2, 2, 32),
            **_GRANITE,
            rope_theta=10000.0,
            position_embedding_type="rope",
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            num_hidden_layers=3,
            num_local_experts=8,
            num_experts_per_tok=2,
            mamba_n_heads=2,
            mamba_d_head=64,
            mamba_d_state=16,
            mamba_n_groups=2,
        ),
        goldens=(Golden(n_prompt=12),),
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "nemotron_h_tiny_pattern",
        config_of(
            "NemotronHForCausalLM",
            "nemotron_h",
            (2, 1, 64),
            **_NEMOTRON,
            hybrid_override_pattern="M-M*-M",
            num_hidden_layers=6,
            mamba_num_heads=4,
            mamba_head_dim=64,
            ssm_state_size=64,
            n_groups=2,
        ),
        goldens=ROUND_CHUNKS,
        n_seeds=MANY_SEEDS,
    ),
    TinyModel(
        "nemotron_h_tiny_experts",
        config_of(
            "NemotronHForCausalLM",
            "nemotron_h",
            (2, 2, 32),
            **_NEMOTRON,
            layers_block_type=["mamba", "moe", "attention", "moe", "mamba"],
            num_hidden_layers=5,
            mamba_num_heads=2,
            mamba_head_dim=32,
            ssm_state_size=128,
            n_groups=1,
            n_routed_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            moe_shared_expert_intermediate_size=48,
            routed_scaling_factor=2.5,
            norm_topk_prob=True,
            n_group=1,
            topk_group=1,
        ),
        goldens=(Golden(n_prompt=12),),
        n_seeds=MANY_SEEDS,
    ),
)


def write_tiny_recurrent(goldens: Path) -> None:
    """Writes one folder for each of TINY_RECURRENT."""
    for tiny in TINY_RECURRENT:
        write_tiny_model(goldens, tiny)
