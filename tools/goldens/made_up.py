"""A tiny checkpoint of the made-up family of the tests, with its logits and greedy ids computed in float64 by NumPy.

The family (tests/support/made_up_family.h) puts together what models other than Llama do: layer norms, parallel blocks,
biases on every linear layer, partial rotation, exact GELU, an attention scale and a soft-cap of its own, and a window in
every other layer. No library has it, so this file is the reference: plain formulas, one position after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save_file

from goldens.drawn import DrawnTensor, write_recipe

N_LAYERS = 4
D_MODEL = 40
N_HEADS = 4
N_KV_HEADS = 2
HEAD_DIM = 64
ROTARY_DIM = 24
D_FF = 72
N_VOCAB = 160
WINDOW = 21
THETA = 10000.0
SCALE = 0.1
SOFTCAP = 5.0
EPSILON = 1e-5
N_PROMPT = 60
N_GREEDY = 24
MIN_GAP = 2e-3  # between the best and the second logit at each greedy step, so that rounding cannot change an id

CONFIG = {
    "architectures": ["MadeUpForCausalLM"],
    "model_type": "made_up",
    "vocab_size": N_VOCAB,
    "hidden_size": D_MODEL,
    "intermediate_size": D_FF,
    "num_hidden_layers": N_LAYERS,
    "num_attention_heads": N_HEADS,
    "num_key_value_heads": N_KV_HEADS,
    "head_dim": HEAD_DIM,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "layer_norm_eps": EPSILON,
    "rope_theta": THETA,
    "partial_rotary_factor": ROTARY_DIM / HEAD_DIM,
    "attention_multiplier": SCALE,
    "attn_logit_softcapping": SOFTCAP,
    "sliding_window": WINDOW,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

Weights = dict[str, np.ndarray]
Logits = Callable[[Weights, np.ndarray], np.ndarray]


def _tensors() -> list[DrawnTensor]:
    out = []

    def draw(name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> None:
        out.append(DrawnTensor.of(name, "F32", shape, mean, deviation))

    def linear(name: str, n_out: int, n_in: int, gain: float = 1.0) -> None:
        draw(name + ".weight", (n_out, n_in), gain * n_in**-0.5)
        draw(name + ".bias", (n_out,), 0.3)

    def norm(name: str) -> None:
        draw(name + ".weight", (D_MODEL,), 0.2, mean=1.0)
        draw(name + ".bias", (D_MODEL,), 0.2)

    draw("transformer.wte.weight", (N_VOCAB, D_MODEL), 1.0)
    for layer in range(N_LAYERS):
        at = f"transformer.h.{layer}."
        norm(at + "ln")
        linear(at + "attn.q", N_HEADS * HEAD_DIM, D_MODEL, 2)
        linear(at + "attn.k", N_KV_HEADS * HEAD_DIM, D_MODEL)
        linear(at + "attn.v", N_KV_HEADS * HEAD_DIM, D_MODEL, 2)
        linear(at + "attn.dense", D_MODEL, N_HEADS * HEAD_DIM)
        linear(at + "mlp.fc1", D_FF, D_MODEL)
        linear(at + "mlp.fc2", D_MODEL, D_FF)
    norm("transformer.ln_f")
    linear("lm_head", N_VOCAB, D_MODEL, 2)
    return out


def _linear(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def _norm(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    centered = x - x.mean(axis=-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + EPSILON)
    return scaled * weights[name + ".weight"] + weights[name + ".bias"]


def _rotated(x: np.ndarray) -> np.ndarray:
    """x [positions, heads, HEAD_DIM]; pairs (i, i + ROTARY_DIM / 2) of the first ROTARY_DIM dimensions are rotated."""
    half = ROTARY_DIM // 2
    frequencies = THETA ** (-2.0 * np.arange(half) / ROTARY_DIM)
    angles = np.arange(len(x))[:, None, None] * frequencies
    cos, sin = np.cos(angles), np.sin(angles)
    first, second, rest = x[..., :half], x[..., half:ROTARY_DIM], x[..., ROTARY_DIM:]
    return np.concatenate((first * cos - second * sin, second * cos + first * sin, rest), axis=-1)


def _attention(weights: Weights, at: str, x: np.ndarray, window: int) -> np.ndarray:
    n = len(x)
    q = _rotated(_linear(weights, at + "attn.q", x).reshape(n, N_HEADS, HEAD_DIM))
    k = _rotated(_linear(weights, at + "attn.k", x).reshape(n, N_KV_HEADS, HEAD_DIM))
    v = _linear(weights, at + "attn.v", x).reshape(n, N_KV_HEADS, HEAD_DIM)
    out = np.zeros((n, N_HEADS, HEAD_DIM))
    for position in range(n):
        first = max(0, position + 1 - window) if window else 0
        for head in range(N_HEADS):
            of = head // (N_HEADS // N_KV_HEADS)
            scores = k[first : position + 1, of] @ q[position, head] * SCALE
            scores = SOFTCAP * np.tanh(scores / SOFTCAP)
            shares = np.exp(scores - scores.max())
            out[position, head] = shares @ v[first : position + 1, of] / shares.sum()
    return _linear(weights, at + "attn.dense", out.reshape(n, -1))


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def logits_of(weights: Weights, ids: np.ndarray) -> np.ndarray:
    """Logits [positions, N_VOCAB] in float64."""
    weights = {name: values.astype(np.float64) for name, values in weights.items()}
    x = weights["transformer.wte.weight"][ids]
    for layer in range(N_LAYERS):
        at = f"transformer.h.{layer}."
        normed = _norm(weights, at + "ln", x)
        attended = _attention(weights, at, normed, WINDOW if layer % 2 == 1 else 0)
        x = x + attended + _linear(weights, at + "mlp.fc2", _gelu(_linear(weights, at + "mlp.fc1", normed)))
    return _linear(weights, "lm_head", _norm(weights, "transformer.ln_f", x))


def _golden(logits_of: Logits, n_vocab: int, weights: Weights, random: np.random.Generator) -> tuple[dict[str, np.ndarray], float]:
    ids = random.integers(3, n_vocab, N_PROMPT)
    ids[0] = 1
    logits = logits_of(weights, ids)
    greedy, gap = ids, math.inf
    for _ in range(N_GREEDY):
        last = logits_of(weights, greedy)[-1]
        best = np.argsort(last)[::-1]
        gap = min(gap, last[best[0]] - last[best[1]])
        greedy = np.append(greedy, best[0])
    tensors = {
        "input_ids": ids.astype(np.int32),
        "logits": logits.astype(np.float32),
        "greedy_ids": greedy[N_PROMPT:].astype(np.int32),
    }
    return tensors, gap


def write_folder(folder: Path, config: dict, tensors: list[DrawnTensor], logits_of: Logits) -> None:
    """Writes a checkpoint with its golden: config.json, weights.txt, golden.safetensors. The seed is the first one that
    leaves a gap at every greedy step."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    files = {"model.safetensors": sorted(tensors, key=lambda tensor: tensor.name)}
    for seed in range(20):
        weights = load(write_recipe(folder, seed, files)["model.safetensors"])
        golden, gap = _golden(logits_of, config["vocab_size"], weights, np.random.default_rng(seed))
        if gap < MIN_GAP:
            continue
        save_file(golden, str(folder / "golden.safetensors"))
        print(f"{folder.name}: seed {seed}, smallest gap of a greedy step {gap:.4f}")
        return
    raise RuntimeError(f"{folder.name}: no seed of 20 leaves a gap of {MIN_GAP} at every greedy step")


def write_made_up(goldens: Path) -> None:
    """Writes the folder `made_up_tiny`."""
    write_folder(goldens / "made_up_tiny", CONFIG, _tensors(), logits_of)
