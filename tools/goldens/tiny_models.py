"""Makes a tiny random checkpoint of any architecture, with the logits and greedy ids that Transformers computes from it
in float32. The tables of checkpoints are in tiny_llamas.py, tiny_families.py and tiny_recurrent.py."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from .auto_models import AutoModelForCausalLM
from .drawn import DrawnTensor, Files, write_recipe

N_VOCAB = 320
N_GREEDY = 64
N_ROWS = 40  # rows of logits that are kept: the last of the prompt
MIN_GAP = 2e-3  # between the best and the second logit of each greedy step, in standard deviations of the logits, so
# that rounding cannot change an id
MIN_DISTINCT = 6  # greedy ids: a text that repeats one token says little
MIN_ROUTER_GAP = 0.05  # between the last chosen and the best other expert, in standard deviations of a row's router
# logits, so that bf16 chooses the same experts
MAX_BF16_ERROR = 0.03  # of a row's logits that Transformers itself computes in bf16, in models with experts
N_SEEDS = 400
STORED = {"float32": "F32", "bfloat16": "BF16"}
N_BYTES = {"F32": 4, "BF16": 2}


@dataclass(frozen=True)
class Golden:
    """One file of what a checkpoint computes. `max_positions`: the longest sequence that the program is told of."""

    file: str = "golden.safetensors"
    n_prompt: int = 40
    max_positions: int = 0
    first_id: int = 1


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
    first_seed: int = 0

    def stored(self) -> str:
        """The dtype of the weights in files."""
        return STORED[self.config.get("dtype") or self.config["torch_dtype"]]


def _in_checkpoint(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters as save_pretrained stores them. It changes those of experts only, which are one parameter in the
    model and tensors of each expert in a checkpoint."""
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    if not any(".experts." in name for name in parameters):
        return parameters
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


def _files(tiny: TinyModel, model: torch.nn.Module) -> Files:
    """How the weights are drawn. Norms stay near what Transformers makes them, 0 or 1."""
    tensors = {}
    for name, value in _in_checkpoint(model).items():
        mean, deviation = 0.0, value.shape[-1] ** -0.5
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            deviation = 0.1
        elif name.endswith(".A_log"):  # states that last for a token, and for many
            mean, deviation = -1.5, 1.2
        elif name.endswith(".mixer.dt_bias"):  # Nemotron-H draws some of time steps near 0, which write nothing
            mean, deviation = 0.5, 0.5
        elif name.endswith(".sinks"):  # more and less than scores
            deviation = 1.5
        elif name.endswith("_proj_bias"):  # of all experts
            deviation = 0.3
        elif ".experts." in name and value.dim() == 3 and tiny.config["model_type"] != "mistral4":
            # Transposed; some of gpt-oss's gate and up are over their limit.
            deviation = (2.5 if "gate_up" in name else 0.4) * value.shape[1] ** -0.5
        elif value.dim() == 1:
            mean, deviation = (0.0, 0.3) if name.endswith(".bias") else (value[0].item(), 0.2)
        tensors[name] = DrawnTensor.of(name, tiny.stored(), value.shape, mean, deviation)
    names = list(tensors)
    if tiny.n_shards == 1:
        return {"model.safetensors": [tensors[name] for name in sorted(names)]}
    files = {}
    for shard in range(tiny.n_shards):
        chosen = names[shard * len(names) // tiny.n_shards : (shard + 1) * len(names) // tiny.n_shards]
        files[f"model-{shard + 1:05d}-of-{tiny.n_shards:05d}.safetensors"] = [tensors[name] for name in sorted(chosen)]
    return files


def _index(files: Files) -> str:
    """The text of model.safetensors.index.json."""
    size = sum(math.prod(tensor.shape) * N_BYTES[tensor.dtype] for tensors in files.values() for tensor in tensors)
    of_tensor = {tensor.name: file for file, tensors in files.items() for tensor in tensors}
    return json.dumps({"metadata": {"total_size": size}, "weight_map": of_tensor}, indent=1) + "\n"


def _gap(numbers: torch.Tensor, n_chosen: int) -> float:
    """Between the last that is chosen and the best other in each row, in standard deviations of the row: the smallest."""
    if n_chosen == numbers.shape[-1]:
        return float("inf")
    ordered = numbers.sort(dim=-1, descending=True).values
    finite = torch.where(numbers.isinf(), torch.nan, numbers)
    deviation = (finite - finite.nanmean(dim=-1, keepdim=True)).square().nanmean(dim=-1).sqrt()
    return ((ordered[:, n_chosen - 1] - ordered[:, n_chosen]) / deviation).min().item()


def _router_gap(router: torch.nn.Module, inputs: tuple, logits: torch.Tensor) -> float:
    """The smallest gap of a router's choices: of experts, and of groups where it keeps some of them."""
    statics = getattr(router, "moe_statics", None)  # of ERNIE 4.5
    bias = inputs[1] if len(inputs) > 1 else getattr(router, "e_score_correction_bias", None)
    if statics is not None:
        choices = logits.softmax(dim=-1) + statics.e_score_correction_bias.squeeze()
    elif bias is not None:
        choices = logits.sigmoid() + bias
    else:
        choices = logits
    n_groups = getattr(router, "num_group", 1)
    of_groups = getattr(router, "topk_method", "") == "group_limited_greedy"  # of DeepSeek V2
    if n_groups in (None, 1) or (bias is None and not of_groups):
        return _gap(choices, router.top_k)
    in_groups = choices.unflatten(-1, (n_groups, -1))
    scores = in_groups.amax(dim=-1) if of_groups else in_groups.topk(2, dim=-1).values.sum(dim=-1)
    is_kept = scores >= scores.topk(router.topk_group, dim=-1).values[:, -1:]
    kept = in_groups.masked_fill(~is_kept[:, :, None], -torch.inf).flatten(-2)
    return min(_gap(scores, router.topk_group), _gap(kept, router.top_k))


def _has_clear_choices(model: torch.nn.Module, ids: torch.Tensor, folder: Path) -> bool:
    """Whether bf16 chooses the experts of float32 and stays near its logits. True without routers."""
    routers = [m for m in model.modules() if type(m).__name__.lower().endswith(("topkrouter", "llama4router"))]
    if not routers:
        return True
    gaps = []

    def look(router: torch.nn.Module, inputs: tuple, outputs: tuple) -> None:
        place = {"Llama4Router": 1, "GraniteMoeHybridTopKRouter": 2}
        logits = outputs[place.get(type(router).__name__, 0)]
        gaps.append(_router_gap(router, inputs, logits))

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
def _write_golden(folder: Path, checkpoint: Path, golden: Golden, generator: torch.Generator) -> float:
    """Returns the smallest gap of a greedy step, 0 if bf16 would choose other experts or the text repeats itself."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()

    def logits_of(ids: torch.Tensor) -> torch.Tensor:
        return model(ids, use_cache=False).logits[0]

    ids = torch.randint(3, N_VOCAB, (1, golden.n_prompt), generator=generator)
    ids[0, 0] = golden.first_id
    if not _has_clear_choices(model, ids, checkpoint):
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
    if len(greedy[0, golden.n_prompt :].unique()) < MIN_DISTINCT:
        return 0.0
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
    """Writes the folder of a checkpoint: config.json, weights.txt, goldens."""
    folder = goldens / tiny.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny.config, indent=2) + "\n")
    torch.manual_seed(0)
    files = _files(tiny, AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32))
    if tiny.n_shards > 1:
        (folder / "model.safetensors.index.json").write_text(_index(files))
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint = Path(temporary)
        for file in folder.glob("*.json"):
            shutil.copy(file, checkpoint)
        for seed in range(tiny.first_seed, tiny.n_seeds):
            for name, drawn in write_recipe(folder, seed, files).items():
                (checkpoint / name).write_bytes(drawn)
            generator = torch.Generator().manual_seed(seed)
            for golden in tiny.goldens:
                if (gap := _write_golden(folder, checkpoint, golden, generator)) < MIN_GAP:
                    break
            else:
                print(f"{folder.name}: seed {seed}, smallest gap of a greedy step of the last golden {gap:.4f}")
                return
    raise RuntimeError(f"{folder.name}: no seed of {tiny.n_seeds} gives a golden that can be tested")
