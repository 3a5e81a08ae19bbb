"""Training rows: a catalogue, then conversations that see the catalogue and themselves but not each other."""

from __future__ import annotations

import multiprocessing as mp
import random
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from .catalogue import Item, random_catalogue, system_prompt
from .questions import TYPES, Question, conversation

PAD, BOS, SYSTEM, USER, ASSISTANT, END = range(6)
SPECIAL_TOKENS = ("<|pad|>", "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
ROW_LEN = 2560


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what is learned."""

    seed: int = 1
    n_steps: int = 12000
    n_rows: int = 32
    lr: float = 2e-3
    n_warmup: int = 200
    cheaper_share: float = 0.0
    long_share: float = 0.0  # of rows that hold one long conversation
    n_workers: int = 15


@dataclass
class Batch:
    """Arrays of shape [rows, ROW_LEN].

    ids       token ids
    position  RoPE position; every conversation begins right behind the catalogue, as in serving
    segment   0 for the catalogue, 1 and up for the conversations, -1 for padding
    weight    loss weight of this token as a target
    turn      0, or 1 + index into `turn_types` (of the row) for answer tokens
    """

    ids: np.ndarray
    position: np.ndarray
    segment: np.ndarray
    weight: np.ndarray
    turn: np.ndarray
    turn_types: list[list[int]]


def _prompt_len(n_items: int) -> int:
    """About the tokens of a catalogue of so many items: measured 45 + 30.5 each, at most 2,519 for 80."""
    return 46 + 61 * n_items // 2


def _random_turn_count(rng: random.Random) -> int:
    draw = rng.random()
    return 1 if draw < 0.65 else rng.randint(2, 4) if draw < 0.9 else rng.randint(5, 12)


def _talks(rng: random.Random, items: list[Item], n_turns: int, recipe: Recipe) -> list[list[Question]]:
    """`n_turns` turns or a few more: now and then one long conversation, else short ones that cannot see each other."""
    n_turns = max(2, n_turns)
    if rng.random() < recipe.long_share:
        few = rng.sample(items, min(len(items), rng.randint(2, 8)))
        return [conversation(rng, items, n_turns, recipe.cheaper_share, few)]
    talks: list[list[Question]] = []
    while n_turns > 0:
        talks.append(conversation(rng, items, _random_turn_count(rng), recipe.cheaper_share, items))
        n_turns -= len(talks[-1])
    return talks


def _random_item_count(rng: random.Random, progress: float) -> int:
    """Items of a catalogue. Tiny ones come first and stay: where there is one item, or two, copying the word for its kind pays
    before its line can be told from eighty others.
    """
    if progress < 0.06:
        return rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 7, 8))
    if progress < 0.25:
        return rng.randint(1, 4) if rng.random() < 0.4 else rng.randint(4, 20)
    if rng.random() < 0.12:
        return rng.randint(1, 4)
    return rng.randint(64, 80) if rng.random() < 0.15 else rng.randint(4, 64)


class RowMaker:
    """Makes batches that depend on (seed, step) alone, so that training can resume anywhere."""

    def __init__(self, recipe: Recipe, tokenizer_file: str) -> None:
        self._recipe = recipe
        self._tokenizer = Tokenizer.from_file(tokenizer_file)

    def batch(self, step: int) -> Batch:
        """The batch of one step."""
        rng = random.Random(f"{self._recipe.seed}/{step}")
        n_rows = self._recipe.n_rows
        shape = (n_rows, ROW_LEN)
        out = Batch(
            ids=np.full(shape, PAD, np.int16),
            position=np.zeros(shape, np.int16),
            segment=np.full(shape, -1, np.int16),
            weight=np.zeros(shape, np.float16),
            turn=np.zeros(shape, np.int16),
            turn_types=[],
        )
        for row in range(n_rows):
            out.turn_types.append(self._fill(out, row, rng, step / self._recipe.n_steps))
        return out

    def _fill(self, out: Batch, row: int, rng: random.Random, progress: float) -> list[int]:
        items = random_catalogue(rng, _random_item_count(rng, progress))
        talks = _talks(rng, items, (ROW_LEN - _prompt_len(len(items))) // 30, self._recipe)
        texts = [system_prompt(items)]
        for talk in talks:
            for turn in talk:
                texts += (turn.text, turn.answer)
        encoded = iter([e.ids for e in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)])
        prompt = [BOS, SYSTEM, *next(encoded), END]  # no targets: predicting the catalogue teaches nothing that answers need
        self._put(out, row, 0, 0, 0, prompt, [0.0] * len(prompt), 0)
        at, types = len(prompt), []
        for segment, talk in enumerate(talks, start=1):
            position = len(prompt)
            for turn in talk:
                asked = [USER, *next(encoded), END, ASSISTANT]
                answer = next(encoded)
                ids = [*asked, *answer, END]
                if at + len(ids) > ROW_LEN:
                    return types
                types.append(TYPES.index(turn.type))
                weight = [0.05] * len(asked) + [1.0] * (len(answer) + 1)
                self._put(out, row, at, segment, position, ids, weight, len(types))
                out.turn[row, at : at + len(asked)] = 0
                at += len(ids)
                position += len(ids)
        return types

    @staticmethod
    def _put(out: Batch, row: int, at: int, segment: int, position: int, ids: list[int], weight: list[float], turn: int) -> None:
        end = at + len(ids)
        out.ids[row, at:end] = ids
        out.position[row, at:end] = np.arange(position, position + len(ids))
        out.segment[row, at:end] = segment
        out.weight[row, at:end] = weight
        out.turn[row, at:end] = turn


def make_batches(recipe: Recipe, tokenizer_file: str, first_step: int, worker: int, queue: mp.Queue) -> None:
    """What one worker process does: every `n_workers`-th batch, into its queue. Here, so that it need not load PyTorch."""
    maker = RowMaker(recipe, tokenizer_file)
    for step in range(first_step + worker, recipe.n_steps, recipe.n_workers):
        queue.put(maker.batch(step))
