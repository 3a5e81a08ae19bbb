"""A tiny checkpoint of the second made-up family of the tests, with its logits and greedy ids computed in float64 by NumPy.

The family (tests/support/made_up_norms_family.h) puts together the norms, gates and scales of Gemma, OLMo 2, Granite and
SmolLM3, another mixture in each of its four layers. No library has it, so this file is the reference: plain formulas.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from goldens.drawn import DrawnTensor
from goldens.made_up import Weights, write_folder

D_MODEL = 48
N_HEADS = 6
N_KV_HEADS = 2
HEAD_DIM = 80
D_FF = 72
N_VOCAB = 160
WINDOW = 21
EPSILON = 1e-4
ATTENTION_SCALE = 0.15
RESIDUAL_SCALE = 0.75
LOGITS_SCALE = 0.25
LOGITS_SOFTCAP = 6.0
PRE, POST = (True, False, True, True), (True, True, True, False)
GATES = ("gelu_pytorch_tanh", "gelu", "silu", "gelu_pytorch_tanh")
QK_NORMS = ("head", "width", "head", "none")
THETAS = (10000.0, None, 500.0, None)  # None: not rotated
WINDOWS = (0, WINDOW, 0, WINDOW)

CONFIG = {
    "architectures": ["MadeUpNormsForCausalLM"],
    "model_type": "made_up_norms",
    "vocab_size": N_VOCAB,
    "hidden_size": D_MODEL,
    "intermediate_size": D_FF,
    "num_hidden_layers": 4,
    "num_attention_heads": N_HEADS,
    "num_key_value_heads": N_KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 512,
    "rms_norm_eps": EPSILON,
    "attention_multiplier": ATTENTION_SCALE,
    "residual_multiplier": RESIDUAL_SCALE,
    "logits_scaling": LOGITS_SCALE,
    "final_logit_softcapping": LOGITS_SOFTCAP,
    "sliding_window": WINDOW,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def _tensors() -> list[DrawnTensor]:
    out = []

    def linear(name: str, n_out: int, n_in: int, gain: float = 1.0) -> None:
        out.append(DrawnTensor.of(name + ".weight", "F32", (n_out, n_in), 0, gain * n_in**-0.5))

    def norm(name: str, n: int) -> None:  # 1 is added to each weight
        out.append(DrawnTensor.of(name + ".weight", "F32", (n,), 0, 0.2))

    out.append(DrawnTensor.of("model.embed.weight", "F32", (N_VOCAB, D_MODEL), 0, 0.1))
    for layer in range(4):
        at = f"model.layers.{layer}."
        if PRE[layer]:
            norm(at + "attention.pre", D_MODEL)
            norm(at + "mlp.pre", D_MODEL)
        if POST[layer]:
            norm(at + "attention.post", D_MODEL)
            norm(at + "mlp.post", D_MODEL)
        if QK_NORMS[layer] != "none":
            is_wide = QK_NORMS[layer] == "width"
            norm(at + "attention.q_norm", HEAD_DIM * (N_HEADS if is_wide else 1))
            norm(at + "attention.k_norm", HEAD_DIM * (N_KV_HEADS if is_wide else 1))
        linear(at + "attention.q", N_HEADS * HEAD_DIM, D_MODEL)
        linear(at + "attention.k", N_KV_HEADS * HEAD_DIM, D_MODEL)
        linear(at + "attention.v", N_KV_HEADS * HEAD_DIM, D_MODEL, 2)
        linear(at + "attention.o", D_MODEL, N_HEADS * HEAD_DIM)
        linear(at + "mlp.gate", D_FF, D_MODEL, 2)
        linear(at + "mlp.up", D_FF, D_MODEL)
        linear(at + "mlp.down", D_MODEL, D_FF, 2)
    norm("model.norm", D_MODEL)
    linear("lm_head", N_VOCAB, D_MODEL, 10)
    return out


def _norm(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON) * (1 + weights[name + ".weight"])


def _rotated(x: np.ndarray, theta: float | None) -> np.ndarray:
    """x [positions, heads, HEAD_DIM]; pairs (i, i + HEAD_DIM / 2) are rotated."""
    if theta is None:
        return x
    half = HEAD_DIM // 2
    angles = np.arange(len(x))[:, None, None] * theta ** (-2.0 * np.arange(half) / HEAD_DIM)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def _attention(weights: Weights, layer: int, x: np.ndarray) -> np.ndarray:
    at = f"model.layers.{layer}.attention."
    n = len(x)

    def heads(name: str, n_heads: int, norm: str) -> np.ndarray:
        flat = x @ weights[at + name + ".weight"].T
        if norm == "width":
            flat = _norm(weights, at + name + "_norm", flat)
        split = flat.reshape(n, n_heads, HEAD_DIM)
        return _norm(weights, at + name + "_norm", split) if norm == "head" else split

    q = _rotated(heads("q", N_HEADS, QK_NORMS[layer]), THETAS[layer])
    k = _rotated(heads("k", N_KV_HEADS, QK_NORMS[layer]), THETAS[layer])
    v = heads("v", N_KV_HEADS, "none")
    out = np.zeros((n, N_HEADS, HEAD_DIM))
    for position in range(n):
        first = max(0, position + 1 - WINDOWS[layer]) if WINDOWS[layer] else 0
        for head in range(N_HEADS):
            of = head // (N_HEADS // N_KV_HEADS)
            scores = k[first : position + 1, of] @ q[position, head] * ATTENTION_SCALE
            shares = np.exp(scores - scores.max())
            out[position, head] = shares @ v[first : position + 1, of] / shares.sum()
    return out.reshape(n, -1) @ weights[at + "o.weight"].T


def _gate(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "silu":
        return x / (1 + np.exp(-x))
    if kind == "gelu":
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _feed_forward(weights: Weights, layer: int, x: np.ndarray) -> np.ndarray:
    at = f"model.layers.{layer}.mlp."
    gate = _gate(x @ weights[at + "gate.weight"].T, GATES[layer])
    return (gate * (x @ weights[at + "up.weight"].T)) @ weights[at + "down.weight"].T


def logits_of(weights: Weights, ids: np.ndarray) -> np.ndarray:
    """Logits [positions, N_VOCAB] in float64."""
    weights = {name: values.astype(np.float64) for name, values in weights.items()}
    x = weights["model.embed.weight"][ids] * math.sqrt(D_MODEL)
    for layer in range(4):
        for part, block in (("attention", _attention), ("mlp", _feed_forward)):
            at = f"model.layers.{layer}.{part}."
            delta = block(weights, layer, _norm(weights, at + "pre", x) if PRE[layer] else x)
            x = x + RESIDUAL_SCALE * (_norm(weights, at + "post", delta) if POST[layer] else delta)
    logits = LOGITS_SCALE * (_norm(weights, "model.norm", x) @ weights["lm_head.weight"].T)
    return LOGITS_SOFTCAP * np.tanh(logits / LOGITS_SOFTCAP)


def write_made_up_norms(goldens: Path) -> None:
    """Writes the folder `made_up_norms_tiny`."""
    write_folder(goldens / "made_up_norms_tiny", CONFIG, _tensors(), logits_of)
