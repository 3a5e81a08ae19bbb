"""The tiny Llamas: numbers of heads, head sizes, ways to store weights, biases, and all scalings of RoPE."""

from __future__ import annotations

from pathlib import Path

from .tiny_models import BOTH_SIDES, N_VOCAB, TinyModel, write_tiny_model


def _llama(heads: tuple[int, int, int], rope: dict, dtype: str = "bfloat16", **fields: object) -> dict:
    """config.json of a Llama with `heads`: query heads, KV heads, head size."""
    n_heads, n_kv_heads, head_dim = heads
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": N_VOCAB,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        **rope,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype" if "rope_parameters" in rope else "torch_dtype": dtype,
        **fields,
    }


_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0, "beta_slow": 1.0}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [round(1 + i / 64, 4) for i in range(32)],
    "long_factor": [round(1 + i / 4, 4) for i in range(32)],
    "original_max_position_embeddings": 80,
}

_OLD = {"rope_theta": 10000.0}
_NEW = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
_UNTIED = {"tie_word_embeddings": False}

TINY_LLAMAS = (
    TinyModel("llama_tiny_gqa64", _llama((4, 2, 64), _NEW, "float32", **_UNTIED)),
    TinyModel(
        "llama_tiny_gqa80",
        _llama((3, 1, 80), {"rope_theta": 500000.0, "rope_scaling": None}, rms_norm_eps=1e-6),
        first_seed=1,  # a row of seed 0 in bf16 on a GPU is beyond the bound of decoder_test
    ),
    TinyModel("llama_tiny_gqa128", _llama((2, 1, 128), {"rope_parameters": {**_LLAMA3, "rope_theta": 10000.0}})),
    TinyModel("llama_tiny_mha64", _llama((2, 2, 64), {**_OLD, "rope_scaling": _LLAMA3}, **_UNTIED)),
    TinyModel(
        "llama_tiny_sharded",
        _llama((2, 1, 64), _OLD, **_UNTIED),
        n_shards=2,
        first_seed=1,  # a row of seed 0 in bf16 on a GPU is close to it
    ),
    TinyModel("llama_tiny_bf16", _llama((4, 2, 64), _OLD)),
    TinyModel(
        "llama_tiny_biases",
        _llama((2, 1, 64), {**_OLD, "rope_scaling": {"type": "linear", "factor": 2.5}}, attention_bias=True, mlp_bias=True),
    ),
    TinyModel(
        "llama_tiny_dynamic",
        _llama((2, 1, 64), {"rope_parameters": _DYNAMIC}, max_position_embeddings=80, num_hidden_layers=1),
        goldens=BOTH_SIDES,
    ),
    TinyModel("llama_tiny_yarn", _llama((2, 1, 64), {**_OLD, "rope_scaling": _YARN}, num_hidden_layers=1)),
    TinyModel(
        "llama_tiny_longrope",
        _llama((2, 1, 64), {"rope_parameters": _LONGROPE}, max_position_embeddings=320, num_hidden_layers=1),
        goldens=BOTH_SIDES,
    ),
)


def write_tiny_llamas(goldens: Path) -> None:
    """Writes one folder for each of TINY_LLAMAS."""
    for tiny in TINY_LLAMAS:
        write_tiny_model(goldens, tiny)
