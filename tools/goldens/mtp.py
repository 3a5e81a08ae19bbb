"""Tiny checkpoints with a layer for drafts (multi-token prediction), and what Transformers' MtpLayer computes with it.

Transformers loads these layers for some architectures only, so the layer is made here from the model's own classes. mtp.safetensors:
input_ids; draft_logits of the rows of the prompt but the last; draft_ids, drafted greedily one after the other from the prompt's
last-but-one row on, and chain_logits, of which each id is the largest."""

from __future__ import annotations

import copy
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.modeling_layers import MtpLayer

from .auto_models import AutoModelForCausalLM
from .drawn import DrawnTensor, draw_into, write_recipe
from .tiny_families import TINY_FAMILIES
from .tiny_models import MIN_GAP, N_VOCAB, TinyModel, _files, _gap, _has_clear_choices

N_PROMPT = 24
N_DRAFTS = 4


@dataclass(frozen=True)
class TinyMtp:
    """A checkpoint of TINY_FAMILIES with one more layer, which is like the model's layer `like`."""

    name: str
    family: str
    like: int
    prefix: str  # of the layer's tensors
    outer: dict[str, str]  # enorm, hnorm, eh_proj and post_norm: their names


def _deepseek(layer: int) -> dict[str, str]:
    stem = f"model.layers.{layer}."
    return {
        "enorm": stem + "enorm.weight",
        "hnorm": stem + "hnorm.weight",
        "eh_proj": stem + "eh_proj.weight",
        "post_norm": stem + "shared_head.norm.weight",
    }


_QWEN = {
    "enorm": "mtp.pre_fc_norm_embedding.weight",
    "hnorm": "mtp.pre_fc_norm_hidden.weight",
    "eh_proj": "mtp.fc.weight",
    "post_norm": "mtp.norm.weight",
}

TINY_MTP = (
    TinyMtp("mtp_glm4_moe", "glm4_moe_tiny_groups", 2, "model.layers.3.", _deepseek(3)),
    TinyMtp("mtp_glm4_moe_lite", "glm4_moe_lite_tiny_dense_first", 2, "model.layers.3.", _deepseek(3)),
    TinyMtp("mtp_qwen3_5", "qwen3_5_tiny_chunks", 3, "mtp.layers.0.", _QWEN),
)


def _config(tiny: TinyMtp) -> dict:
    config = next(each.config for each in TINY_FAMILIES if each.name == tiny.family)
    key = "mtp_num_hidden_layers" if tiny.prefix.startswith("mtp.") else "num_nextn_predict_layers"
    return {**config, key: 1}


def _all_tensors(tiny: TinyMtp, model: torch.nn.Module) -> list[DrawnTensor]:
    """The model's tensors, and for each of the layer `like` one of the layer for drafts."""
    model_tensors = _files(TinyModel(tiny.name, _config(tiny)), model)["model.safetensors"]
    stem = f"model.layers.{tiny.like}."
    tensors = [*model_tensors]
    for each in model_tensors:
        if each.name.startswith(stem):
            tensors.append(DrawnTensor(tiny.prefix + each.name[len(stem) :], each.dtype, each.mean, each.spread, each.shape))
    norm = next(each for each in model_tensors if each.name == "model.norm.weight")
    width = norm.shape[0]
    for part, name in tiny.outer.items():
        if part == "eh_proj":
            tensors.append(DrawnTensor.of(name, norm.dtype, (width, 2 * width), 0.0, (2 * width) ** -0.5))
        else:
            tensors.append(DrawnTensor(name, norm.dtype, norm.mean, norm.spread, norm.shape))
    return sorted(tensors, key=lambda tensor: tensor.name)


def _fused(name: str, prefix: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """A parameter of the layer; of experts the tensors of each, stacked."""
    if prefix + name in tensors:
        return tensors[prefix + name]
    stem, last = (prefix + name).rsplit(".", 1)
    n_experts = 1 + max(int(key[len(stem) + 1 :].split(".")[0]) for key in tensors if key.startswith(stem + "."))
    of = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[last]
    return torch.stack([torch.cat([tensors[f"{stem}.{e}.{part}.weight"] for part in of]) for e in range(n_experts)])


def _make_layer(tiny: TinyMtp, model: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> MtpLayer:
    """MtpLayer with the checkpoint's weights."""
    block = copy.deepcopy(model.model.layers[tiny.like])
    layer = MtpLayer(model.config, lambda config, index: block, type(model.model.norm), tiny.like)
    with torch.no_grad():
        for name, parameter in [*block.named_parameters(), *block.named_buffers()]:
            if name.endswith("inv_freq"):
                continue
            parameter.copy_(_fused(name, tiny.prefix, tensors))
        for part, name in tiny.outer.items():
            getattr(layer, part).weight.copy_(tensors[name])
    return layer.float().eval()


def _draft(model: torch.nn.Module, layer: MtpLayer, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """What the layer gives for a prompt [1, n]."""
    hidden = model.model(ids, use_cache=False).last_hidden_state[:, :-1]
    tokens = ids[:, 1:]
    chain = []
    draft_logits = None
    for _ in range(N_DRAFTS):
        embeds = model.get_input_embeddings()(tokens)
        n = tokens.shape[1]
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        sections = positions.expand(3, 1, n) if hasattr(model.model.rotary_emb, "mrope_section") else positions
        rotations = model.model.rotary_emb(embeds, position_ids=sections)
        out = layer(embeds, hidden, rotations, mask, positions, None)
        logits = model.lm_head(out)[0].float()
        draft_logits = logits if draft_logits is None else draft_logits
        chain.append(logits[-1])
        tokens = torch.cat((tokens, logits[-1].argmax()[None, None]), dim=1)
        hidden = torch.cat((hidden, out[:, -1:]), dim=1)
    return {
        "input_ids": ids[0].int(),
        "draft_logits": draft_logits.contiguous(),
        "draft_ids": tokens[0, ids.shape[1] - 1 :].int(),
        "chain_logits": torch.stack(chain),
    }


@torch.no_grad()
def _write(goldens: Path, tiny: TinyMtp) -> None:
    folder = goldens / tiny.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(tiny), indent=2) + "\n")
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    files = {"model.safetensors": _all_tensors(tiny, made)}
    for seed in range(400):
        write_recipe(folder, seed, files)
        with tempfile.TemporaryDirectory() as temporary:
            checkpoint = Path(temporary)
            draw_into(checkpoint, folder)
            model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
            tensors = {name: value.float() for name, value in load_file(checkpoint / "model.safetensors").items()}
            layer = _make_layer(tiny, model, tensors)
            ids = torch.randint(3, N_VOCAB, (1, N_PROMPT), generator=torch.Generator().manual_seed(seed))
            golden = _draft(model, layer, ids)
            if _gap(golden["chain_logits"], 1) < 10 * MIN_GAP or len(golden["draft_ids"].unique()) < N_DRAFTS:
                continue
            if not _has_clear_choices(model, ids, checkpoint):
                continue
        save_file(golden, str(folder / "mtp.safetensors"))
        print(f"{tiny.name}: seed {seed}")
        return
    raise RuntimeError(f"{tiny.name}: no seed gives a golden that can be tested")


def write_mtp(goldens: Path) -> None:
    """Writes one folder for each of TINY_MTP."""
    for tiny in TINY_MTP:
        _write(goldens, tiny)
