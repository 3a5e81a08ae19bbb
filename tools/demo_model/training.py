"""The training loop: worker processes make rows, one GPU learns from them."""

from __future__ import annotations

import math
import multiprocessing as mp
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from queue import Queue

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask

from .network import DemoNetwork, Shape
from .questions import HELD_TYPES, TYPES
from .rows import ROW_LEN, Batch, Recipe, RowMaker, make_batches


class _Feed:
    """Batches in step order, made by worker processes and moved to the GPU ahead of use."""

    def __init__(self, recipe: Recipe, tokenizer_file: str, first_step: int) -> None:
        context = mp.get_context("spawn")
        self._queues = [context.Queue(maxsize=6) for _ in range(recipe.n_workers)]
        for worker, queue in enumerate(self._queues):
            arguments = (recipe, tokenizer_file, first_step, worker, queue)
            context.Process(target=make_batches, args=arguments, daemon=True).start()
        self._ready: Queue = Queue(maxsize=4)
        self._steps = range(first_step, recipe.n_steps)
        threading.Thread(target=self._move, daemon=True).start()

    def _move(self) -> None:
        for index, _ in enumerate(self._steps):
            self._ready.put(to_device(self._queues[index % len(self._queues)].get()))

    def next(self) -> dict[str, Tensor]:
        return self._ready.get()


def to_device(batch: Batch) -> dict[str, Tensor]:
    """The arrays of a batch as tensors on the GPU."""
    fields = ("ids", "position", "segment", "weight", "turn")
    return {f: torch.from_numpy(getattr(batch, f)).pin_memory().to("cuda", non_blocking=True) for f in fields}


class Trainer:
    """Network, optimiser and step count; saved and resumed as one file."""

    def __init__(self, recipe: Recipe, tokenizer_file: Path, checkpoint: Path, start_from: Path | None = None) -> None:
        torch.manual_seed(recipe.seed)
        torch.set_float32_matmul_precision("high")
        self.recipe = recipe
        self.tokenizer_file = str(tokenizer_file)
        self.checkpoint = checkpoint
        self.network = DemoNetwork(Shape()).cuda()
        matrices = [p for p in self.network.parameters() if p.dim() == 2]
        vectors = [p for p in self.network.parameters() if p.dim() != 2]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.98), fused=True)
        self.step = 0
        self._segment = torch.zeros(recipe.n_rows, ROW_LEN, dtype=torch.int32, device="cuda")
        self._make_mask = torch.compile(create_block_mask)
        self._forward = torch.compile(self._loss)
        if start_from:
            tensors = load_file(start_from, device="cuda")
            self.network.load_state_dict({k.removeprefix("model."): v.float() for k, v in tensors.items()})
            self._part_alike_embeddings()
        if checkpoint.exists():
            state = torch.load(checkpoint, map_location="cuda")
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    @torch.no_grad()
    def _part_alike_embeddings(self) -> None:
        """Gives tokens whose vectors have become one (cosine over 0.9: no answer used them yet) directions of their own."""
        table = self.network.embed_tokens.weight
        unit = functional.normalize(table, dim=1)
        alike = ((unit @ unit.T).fill_diagonal_(0) > 0.9).any(dim=1)
        table[alike] += functional.normalize(torch.randn_like(table[alike]), dim=1) * 2
        print(f"{int(alike.sum())} embeddings were alike", flush=True)

    def _mask(self, segment: Tensor):
        """Causal, and a conversation sees only the catalogue and itself. The buffer is reused so nothing recompiles."""
        self._segment.copy_(segment)
        of = self._segment

        def visible(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & ((of[row, key] == 0) | (of[row, key] == of[row, query]))

        return self._make_mask(visible, self.recipe.n_rows, None, ROW_LEN, ROW_LEN, device="cuda")

    def _loss(self, ids: Tensor, position: Tensor, weight: Tensor, mask) -> tuple[Tensor, Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.network(ids, position, mask)
        targets = torch.cat((ids[:, 1:], torch.zeros_like(ids[:, :1])), dim=1)
        weight = torch.cat((weight[:, 1:], torch.zeros_like(weight[:, :1])), dim=1).float()
        losses = functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
        right = logits.argmax(-1) == targets
        return (losses * weight.flatten()).sum() / weight.sum(), right

    def _lr(self, time_share: float) -> float:
        r = self.recipe
        if self.step < r.n_warmup:
            return r.lr * (self.step + 1) / r.n_warmup
        progress = max(time_share, (self.step - r.n_warmup) / (r.n_steps - r.n_warmup))
        return r.lr * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))

    def _run(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        mask = self._mask(batch["segment"])
        return self._forward(batch["ids"].long(), batch["position"].long(), batch["weight"], mask)

    def train(self, stop_after_s: float, finish_in_s: float = math.inf) -> bool:
        """Trains to the end or until the time is over; saves; says whether the end was reached.

        By `finish_in_s` the rate of learning has come down to nothing, whatever the step.
        """
        start, first_step = time.monotonic(), self.step
        first_step_s = 0.0
        feed = _Feed(self.recipe, self.tokenizer_file, self.step)
        held_out_recipe = replace(self.recipe, seed=self.recipe.seed + 1_000_000, long_share=0.0)
        held_out = RowMaker(held_out_recipe, self.tokenizer_file).batch(self.recipe.n_steps)
        total = torch.zeros((), device="cuda")
        while self.step < self.recipe.n_steps and time.monotonic() - start < min(stop_after_s, finish_in_s):
            time_share = (time.monotonic() - start - first_step_s) / (finish_in_s - first_step_s) if first_step_s else 0.0
            for group in self.optimizer.param_groups:
                group["lr"] = self._lr(time_share)
            loss, _ = self._run(feed.next())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            first_step_s = first_step_s or time.monotonic() - start  # it compiles the kernels
            total += loss.detach()
            if self.step % 100 == 0:
                seconds = time.monotonic() - start
                pace_ms = 1000 * seconds / (self.step - first_step)
                print(f"step {self.step} loss {total.item() / 100:.4f} {seconds:.0f} s {pace_ms:.1f} ms/step", flush=True)
                total.zero_()
            if self.step % 500 == 0:
                print(f"  held-out answers right, next token by next token: {self._held_out(held_out)}", flush=True)
            if self.step % 2000 == 0:
                self.save()
        self.save()
        return self.step == self.recipe.n_steps

    def _held_out(self, batch: Batch) -> str:
        _, right = self._run(to_device(batch))
        turn = torch.from_numpy(batch.turn)[:, 1:]
        right = right[:, :-1].cpu()
        seen, good = defaultdict(int), defaultdict(int)
        for row, types in enumerate(batch.turn_types):
            wrong = set(turn[row][~right[row] & (turn[row] > 0)].tolist())
            for index, kind in enumerate(types, start=1):
                if TYPES[kind] in HELD_TYPES:  # they have many right answers
                    continue
                seen[TYPES[kind]] += 1
                good[TYPES[kind]] += index not in wrong
        return " ".join(f"{t} {good[t]}/{seen[t]}" for t in TYPES if seen[t])

    def save(self) -> None:
        """Writes the checkpoint, whole or not at all."""
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)
