"""The tiny checkpoints of the families other than Llama. Windows are shorter than the prompt."""

from __future__ import annotations

from pathlib import Path

from .tiny_models import BOTH_SIDES, N_VOCAB, TinyModel, write_tiny_model

_WINDOW = 21


def _config(architecture: str, model_type: str, heads: tuple[int, int, int], **fields: object) -> dict:
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

TINY_FAMILIES = (
    TinyModel(
        "mistral_tiny_window",
        _config("MistralForCausalLM", "mistral", (2, 1, 64), **_ROPE, sliding_window=_WINDOW),
    ),
    TinyModel(
        "ministral_tiny_types",
        _config(
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
        "qwen2_tiny_windows",
        _config(
            "Qwen2ForCausalLM",
            "qwen2",
            (2, 1, 128),
            rope_theta=1000000.0,
            use_sliding_window=True,
            sliding_window=_WINDOW,
            max_window_layers=1,
        ),
    ),
    TinyModel(
        "phi_tiny_parallel",
        _config("PhiForCausalLM", "phi", (2, 2, 80), rope_theta=10000.0, partial_rotary_factor=0.4, tie_word_embeddings=False),
    ),
    TinyModel(
        "phi3_tiny_fused",
        _config("Phi3ForCausalLM", "phi3", (2, 2, 96), rope_theta=10000.0, rope_scaling=None, sliding_window=_WINDOW),
    ),
    TinyModel(
        "phi3_tiny_longrope",
        _config(
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
)


def write_tiny_families(goldens: Path) -> None:
    """Writes one folder for each of TINY_FAMILIES."""
    for tiny in TINY_FAMILIES:
        write_tiny_model(goldens, tiny)
