"""Makes a tiny random checkpoint of any architecture, with the logits and greedy ids that Transformers computes from it
in float32. The tables of checkpoints are in tiny_llamas.py and tiny_families.py."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

N_VOCAB = 320
N_GREEDY = 64
N_ROWS = 40  # rows of logits that are kept: the last of the prompt
MIN_GAP = 2e-3  # between the best and the second logit of each greedy step, in standard deviations of the logits, so
# that rounding cannot change an id
MIN_ROUTER_GAP = 0.05  # between the last chosen and the best other expert, in standard deviations of a row's router
# logits, so that bf16 chooses the same experts
MAX_BF16_ERROR = 0.03  # of a row's logits that Transformers itself computes in bf16, in models with experts
N_SEEDS = 60


@dataclass(frozen=True)
class Golden:
    """One file of what a checkpoint computes. `max_positions`: the longest sequence that the program is told of."""

    file: str = "golden.safetensors"
    n_prompt: int = 40
    max_positions: int = 0


# Both sides of an original length of 80 tokens.
BOTH_SIDES = (Golden("golden.safetensors", 16, 80), Golden("golden_long.safetensors", 88, 152))


@dataclass(frozen=True)
class TinyModel:
    """One checkpoint: its config.json, how its weights are stored, and its goldens."""

    name: str
    config: dict
    n_shards: int = 1
    goldens: tuple[Golden, ...] = (Golden(),)
    n_seeds: int = N_SEEDS

    def dtype(self) -> torch.dtype:
        text = self.config.get("text_config", {})
        for key in ("dtype", "torch_dtype"):
            if name := self.config.get(key) or text.get(key):
                return getattr(torch, name)
        raise KeyError(f"{self.name}: no dtype")


def _weights(model: torch.nn.Module, dtype: torch.dtype, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Random weights under their names in a checkpoint. Norms stay near what Transformers makes them, 0 or 1."""
    out = {}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            value = 0.3 * noise if name.endswith(".bias") else parameter.detach() + 0.2 * noise
        else:
            value = parameter.shape[-1] ** -0.5 * noise
        out[name] = value.to(dtype).contiguous()
    return out


def _in_checkpoint(model: torch.nn.Module, weights: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The weights as save_pretrained stores them. It changes those of experts only, which are one parameter in the
    model and tensors of each expert in a checkpoint."""
    if not any(".experts." in name for name in weights):
        return weights
    model.load_state_dict(weights, strict=False)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return {name: value.to(dtype) for name, value in load_file(Path(folder) / "model.safetensors").items()}


def _write_weights(tiny: TinyModel, weights: dict[str, torch.Tensor], folder: Path) -> None:
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


def _has_clear_choices(model: torch.nn.Module, ids: torch.Tensor, folder: Path) -> bool:
    """Whether bf16 chooses the experts of float32 and stays near its logits. True without routers."""
    routers = [m for m in model.modules() if type(m).__name__.endswith("TopKRouter")]
    if not routers:
        return True
    gaps = []

    def look(router: torch.nn.Module, _inputs: tuple, outputs: tuple) -> None:
        ordered = outputs[0].sort(dim=-1, descending=True).values
        gap = ordered[:, router.top_k - 1] - ordered[:, router.top_k]
        gaps.append((gap / outputs[0].std(dim=-1)).min().item())

    hooks = [router.register_forward_hook(look) for router in routers]
    expected = model(ids, use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    if min(gaps) < MIN_ROUTER_GAP:
        return False
    rounded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").eval()
    error = rounded(ids, use_cache=False).logits[0].float() - expected
    return (error.norm(dim=-1) / expected.norm(dim=-1)).max().item() < MAX_BF16_ERROR


@torch.no_grad()
def _write_golden(folder: Path, golden: Golden, generator: torch.Generator) -> float:
    """Returns the smallest gap of a greedy step, 0 if bf16 would choose other experts."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    def logits_of(ids: torch.Tensor) -> torch.Tensor:
        return model(ids, use_cache=False).logits[0]

    ids = torch.randint(3, N_VOCAB, (1, golden.n_prompt), generator=generator)
    ids[0, 0] = 1
    if not _has_clear_choices(model, ids, folder):
        return 0.0
    if golden.max_positions:  # dynamic RoPE keeps the frequencies of the longest sequence so far
        logits_of(torch.full((1, golden.max_positions), 5))
    logits = logits_of(ids)
    greedy, gap = ids, float("inf")
    for _ in range(N_GREEDY):
        last = logits_of(greedy)[-1]
        best = last.topk(2)
        gap = min(gap, ((best.values[0] - best.values[1]) / last.std()).item())
        greedy = torch.cat((greedy, best.indices[:1, None]), dim=1)
    n_rows = min(N_ROWS, golden.n_prompt)
    tensors = {
        "input_ids": ids[0].int(),
        "positions": torch.arange(golden.n_prompt - n_rows, golden.n_prompt, dtype=torch.int32),
        "logits": logits[-n_rows:].float().contiguous(),
        "greedy_ids": greedy[0, golden.n_prompt :].int(),
    }
    if golden.max_positions:
        tensors["max_positions"] = torch.tensor([golden.max_positions], dtype=torch.int32)
    save_file(tensors, str(folder / golden.file))
    return gap


def write_tiny_model(goldens: Path, tiny: TinyModel) -> None:
    """Writes the folder of a checkpoint: config.json, weights, goldens."""
    folder = goldens / tiny.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny.config, indent=2) + "\n")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    gap = 0.0
    for seed in range(tiny.n_seeds):
        generator = torch.Generator().manual_seed(seed)
        weights = _in_checkpoint(model, _weights(model, tiny.dtype(), generator), tiny.dtype())
        _write_weights(tiny, weights, folder)
        for golden in tiny.goldens:
            if (gap := _write_golden(folder, golden, generator)) < MIN_GAP:
                break
        else:
            print(f"{folder.name}: seed {seed}, smallest gap of a greedy step of the last golden {gap:.4f}")
            return
    raise RuntimeError(f"{folder.name}: no seed of {tiny.n_seeds} leaves a gap of {MIN_GAP} at every greedy step")
