"""A short training on the CPU, for behaviour that needs little: it begins with trained weights and changes them gently."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from .network import DemoNetwork, Shape
from .rows import Batch, Recipe, RowMaker

_N_SHORT_ROWS, _SHORT_ROW_LEN = 24, 192
_N_WARMUP = 10
_PRINT_EVERY = 24


def _sees(segment: Tensor) -> Tensor:
    """[rows, len] -> [rows, 1, len, len]: causal, and a conversation sees only the catalogue and itself."""
    key = segment[:, None, :]
    causal = torch.ones(segment.shape[1], segment.shape[1], dtype=torch.bool).tril()
    return (causal & ((key == 0) | (key == segment[:, :, None])))[:, None]


def _loss_sum(network: DemoNetwork, batch: Batch) -> tuple[Tensor, float]:
    """The sum of the weighted losses of a batch, and the sum of the weights."""
    ids, position = (torch.from_numpy(a).long() for a in (batch.ids, batch.position))
    weight = torch.from_numpy(batch.weight).float()[:, 1:].flatten()
    chosen = weight.nonzero().squeeze(1)
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(ids, position, _sees(torch.from_numpy(batch.segment)))
    logits = logits[:, :-1].flatten(0, 1)[chosen].float()
    losses = functional.cross_entropy(logits, ids[:, 1:].flatten()[chosen], reduction="none")
    return (losses * weight[chosen]).sum(), float(weight.sum())


def _batches(recipe: Recipe, tokenizer_file: str, short_every: int, full_every: int) -> Iterator[dict[str, Batch]]:
    """Per step rows without a catalogue, which are short, or a full row, which has a catalogue or functions, or both."""
    full = RowMaker(replace(recipe, n_rows=1, json_row_share=0.0), tokenizer_file)
    short = replace(recipe, n_rows=_N_SHORT_ROWS, row_len=_SHORT_ROW_LEN, json_row_share=1.0, seed=recipe.seed + 500_000)
    makers = (("short rows", short_every, RowMaker(short, tokenizer_file)), ("full rows", full_every, full))
    for step in range(recipe.n_steps):
        yield {name: maker.batch(step) for name, every, maker in makers if step % every == 0}


class Tuner:
    """Network, optimiser and step count of a short training; each step takes some of the rows of `_batches`."""

    def __init__(self, recipe: Recipe, tokenizer_file: Path, start_from: Path) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.tokenizer_file = str(tokenizer_file)
        self.network = DemoNetwork(Shape())
        self.network.load_state_dict({k.removeprefix("model."): v.float() for k, v in load_file(start_from).items()})
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=recipe.lr, betas=(0.9, 0.98), weight_decay=0.0)
        self.step = 0

    def _learn(self, batches: dict[str, Batch], progress: float) -> dict[str, float]:
        """One step at this share of the whole; the mean loss of each kind of rows in it."""
        rate = self.recipe.lr * min(1.0, (self.step + 1) / _N_WARMUP) * 0.5 * (1 + math.cos(math.pi * progress))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        losses = {}
        for name, batch in batches.items():
            loss, weight = _loss_sum(self.network, batch)
            (loss / weight).backward()
            losses[name] = loss.item() / weight
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return losses

    def tune(self, short_every: int, full_every: int, finish_in_s: float) -> Iterator[int]:
        """Trains for so many seconds or steps, with a rate that falls to nothing, and yields the number of each step done."""
        start, seen = time.monotonic(), defaultdict(list)
        for batches in _batches(self.recipe, self.tokenizer_file, short_every, full_every):
            seconds = time.monotonic() - start
            if seconds >= finish_in_s:
                return
            for name, loss in self._learn(batches, max(seconds / finish_in_s, self.step / self.recipe.n_steps)).items():
                seen[name].append(loss)
            if self.step % _PRINT_EVERY == 0:
                means = ", ".join(f"{name} {sum(losses) / len(losses):.4f}" for name, losses in seen.items())
                print(f"step {self.step} loss of {means} {seconds:.0f} s", flush=True)
                seen.clear()
            yield self.step
