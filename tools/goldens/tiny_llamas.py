"""Tiny random Llama checkpoints with the logits and greedy ids that Transformers computes from them in float32."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

N_VOCAB = 320
N_PROMPT = 40
N_GREEDY = 24
MIN_GAP = 2e-3  # between the best and the second logit at each greedy step, so that rounding cannot change an id


@dataclass(frozen=True)
class TinyLlama:
    """One checkpoint: shapes, the spelling of its config.json, and how its weights are stored."""

    name: str
    n_heads: int
    n_kv_heads: int
    head_dim: int
    tied: bool
    rope: dict = field(default_factory=dict)
    d_model: int = 48
    d_ffn: int = 80
    norm_eps: float = 1e-5
    dtype: torch.dtype = torch.float32
    n_shards: int = 1


_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

TINY_LLAMAS = (
    TinyLlama("gqa64", 4, 2, 64, tied=False, rope={"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    TinyLlama("gqa80", 3, 1, 80, tied=True, rope={"rope_theta": 500000.0, "rope_scaling": None}, norm_eps=1e-6),
    TinyLlama("gqa128", 2, 1, 128, tied=True, rope={"rope_parameters": {**_LLAMA3, "rope_theta": 10000.0}}),
    TinyLlama("mha64", 2, 2, 64, tied=False, rope={"rope_theta": 10000.0, "rope_scaling": _LLAMA3}),
    TinyLlama("sharded", 2, 1, 64, tied=False, rope={"rope_theta": 10000.0}, n_shards=2),
    TinyLlama("bf16", 4, 2, 64, tied=True, rope={"rope_theta": 10000.0}, dtype=torch.bfloat16),
)


def _config(tiny: TinyLlama) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": N_VOCAB,
        "hidden_size": tiny.d_model,
        "intermediate_size": tiny.d_ffn,
        "num_hidden_layers": 2,
        "num_attention_heads": tiny.n_heads,
        "num_key_value_heads": tiny.n_kv_heads,
        "head_dim": tiny.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": tiny.norm_eps,
        **tiny.rope,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tiny.tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype" if "rope_parameters" in tiny.rope else "torch_dtype": str(tiny.dtype).removeprefix("torch."),
    }


def _weights(tiny: TinyLlama, generator: torch.Generator) -> dict[str, torch.Tensor]:
    def matrix(n_out: int, n_in: int) -> torch.Tensor:
        return (torch.randn(n_out, n_in, generator=generator) * n_in**-0.5).to(tiny.dtype)

    def norm() -> torch.Tensor:
        return (1 + 0.2 * torch.randn(tiny.d_model, generator=generator)).to(tiny.dtype)

    d_query, d_kv = tiny.n_heads * tiny.head_dim, tiny.n_kv_heads * tiny.head_dim
    out = {"model.embed_tokens.weight": matrix(N_VOCAB, tiny.d_model)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        out[at + "input_layernorm.weight"] = norm()
        out[at + "self_attn.q_proj.weight"] = 2 * matrix(d_query, tiny.d_model)
        out[at + "self_attn.k_proj.weight"] = matrix(d_kv, tiny.d_model)
        out[at + "self_attn.v_proj.weight"] = 2 * matrix(d_kv, tiny.d_model)
        out[at + "self_attn.o_proj.weight"] = matrix(tiny.d_model, d_query)
        out[at + "post_attention_layernorm.weight"] = norm()
        out[at + "mlp.gate_proj.weight"] = matrix(tiny.d_ffn, tiny.d_model)
        out[at + "mlp.up_proj.weight"] = matrix(tiny.d_ffn, tiny.d_model)
        out[at + "mlp.down_proj.weight"] = matrix(tiny.d_model, tiny.d_ffn)
    out["model.norm.weight"] = norm()
    if not tiny.tied:
        out["lm_head.weight"] = matrix(N_VOCAB, tiny.d_model)
    return out


def _write_weights(tiny: TinyLlama, weights: dict[str, torch.Tensor], folder: Path) -> None:
    if tiny.n_shards == 1:
        save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
        return
    names = list(weights)
    files = {}
    for shard in range(tiny.n_shards):
        file = f"model-{shard + 1:05d}-of-{tiny.n_shards:05d}.safetensors"
        chosen = names[shard * len(names) // tiny.n_shards : (shard + 1) * len(names) // tiny.n_shards]
        save_file({name: weights[name] for name in chosen}, str(folder / file), metadata={"format": "pt"})
        files |= dict.fromkeys(chosen, file)
    size = sum(w.numel() * w.element_size() for w in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


@torch.no_grad()
def _write_golden(folder: Path, generator: torch.Generator) -> float:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(3, N_VOCAB, (1, N_PROMPT), generator=generator)
    ids[0, 0] = 1
    logits = model(ids).logits[0]
    greedy, gap = ids, float("inf")
    for _ in range(N_GREEDY):
        best = model(greedy).logits[0, -1].topk(2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        greedy = torch.cat((greedy, best.indices[:1, None]), dim=1)
    tensors = {
        "input_ids": ids[0].int(),
        "positions": torch.arange(N_PROMPT, dtype=torch.int32),
        "logits": logits.float().contiguous(),
        "greedy_ids": greedy[0, N_PROMPT:].int(),
    }
    save_file(tensors, str(folder / "golden.safetensors"))
    return gap


def write_tiny_llamas(goldens: Path) -> None:
    """Writes one folder `llama_tiny_NAME` each: config.json, weights, golden.safetensors."""
    for index, tiny in enumerate(TINY_LLAMAS):
        folder = goldens / f"llama_tiny_{tiny.name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(_config(tiny), indent=2) + "\n")
        for attempt in range(20):
            generator = torch.Generator().manual_seed(100 * index + attempt)
            _write_weights(tiny, _weights(tiny, generator), folder)
            gap = _write_golden(folder, generator)
            if gap >= MIN_GAP:
                print(f"{folder.name}: seed {100 * index + attempt}, smallest gap of a greedy step {gap:.4f}")
                break
        else:
            raise RuntimeError(f"{folder.name}: no seed of 20 leaves a gap of {MIN_GAP} at every greedy step")
