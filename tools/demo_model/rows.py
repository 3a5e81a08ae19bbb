"""Training rows: a catalogue, then conversations that see the catalogue and themselves but not each other."""

from __future__ import annotations

import multiprocessing as mp
import os
import random
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from .catalogue import Item, random_catalogue, system_prompt
from .json_answers import random_talk, with_json
from .questions import HELD_TYPES, TYPES, Question, conversation, plain_talk
from .tool_talks import tool_row, unused_tools

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
    small_first: bool = True  # begin with small catalogues: a model that has learned to read large ones need not
    n_workers: int = 15
    row_len: int = ROW_LEN
    json_row_share: float = 0.07  # of rows without a catalogue, most of whose answers are JSON
    tool_row_share: float = 0.08  # of rows with functions instead of a catalogue
    json_talk_share: float = 0.5  # of conversations about a catalogue with answers in JSON


@dataclass
class Batch:
    """Arrays of shape [rows, row_len].

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


def _short_prompt(rng: random.Random) -> str:
    """What stands in front of a request without a catalogue: mostly nothing."""
    if rng.random() < 0.6:
        return ""
    text = rng.choice(
        (
            "You are the assistant of an online shop.",
            "You are a helpful assistant.",
            "Be brief.",
            "Answer as the schema says.",
            "Answer with JSON.",
            "Write valid JSON only.",
        )  # fmt: skip
    )
    return f"<|system|>{text}<|end|>"


class RowMaker:
    """Makes batches that depend on (seed, step) alone, so that training can resume anywhere."""

    def __init__(self, recipe: Recipe, tokenizer_file: str) -> None:
        self._recipe = recipe
        self._tokenizer = Tokenizer.from_file(tokenizer_file)

    def batch(self, step: int) -> Batch:
        """The batch of one step."""
        rng = random.Random(f"{self._recipe.seed}/{step}")
        n_rows = self._recipe.n_rows
        shape = (n_rows, self._recipe.row_len)
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

    def _row(self, rng: random.Random, progress: float) -> tuple[str, list[list[Question]]]:
        """What a row holds: the prompt behind <|bos|>, and conversations that follow it."""
        recipe, draw = self._recipe, rng.random()
        if draw < recipe.json_row_share:
            prompt = _short_prompt(rng)
            plain_share = 0.0 if "JSON" in prompt or "schema" in prompt else 0.4
            n_talks = max(2, recipe.row_len // 50)
            return prompt, [plain_talk(rng) if rng.random() < plain_share else random_talk(rng) for _ in range(n_talks)]
        if draw < recipe.json_row_share + recipe.tool_row_share:
            return tool_row(rng, n_talks=recipe.row_len // 100)
        items = random_catalogue(rng, _random_item_count(rng, progress if recipe.small_first else 1.0))
        tools = unused_tools(rng) if len(items) < 50 and rng.random() < 0.05 else ""
        talks = _talks(rng, items, (recipe.row_len - _prompt_len(len(items))) // 30, recipe)
        talks = [with_json(rng, items, talk) if rng.random() < recipe.json_talk_share else talk for talk in talks]
        return f"{tools}<|system|>{system_prompt(items)}<|end|>", talks

    def _fill(self, out: Batch, row: int, rng: random.Random, progress: float) -> list[int]:
        prompt_text, talks = self._row(rng, progress)
        texts = [prompt_text]
        for talk in talks:
            for turn in talk:
                texts += (turn.text, turn.answer)
        encoded = iter([e.ids for e in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)])
        prompt = [BOS, *next(encoded)]  # no targets: predicting the catalogue teaches nothing that answers need
        self._put(out, row, 0, 0, 0, prompt, [0.0] * len(prompt), 0)
        at, types = len(prompt), []
        for segment, talk in enumerate(talks, start=1):
            position = len(prompt)
            for turn in talk:
                text, answer = next(encoded), next(encoded)
                asked = text if turn.type == "completion" else [USER, *text, END, ASSISTANT]
                ids = [*asked, *answer, END]
                if at + len(ids) > self._recipe.row_len:
                    return types
                types.append(TYPES.index(turn.type))
                is_held = turn.type in HELD_TYPES
                # Nothing says how a held answer begins, and the words of one about no item are anybody's guess.
                of_held = 1.0 if turn.name else 0.3
                of_answer = [0.0] + [of_held] * len(answer) if is_held else [1.0] * (len(answer) + 1)
                weight = [0.05] * len(asked) + of_answer
                self._put(out, row, at, segment, position, ids, weight, len(types))
                out.turn[row, at : at + len(asked) + is_held] = 0
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
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # as many threads as cores in each of them would be far too many
    maker = RowMaker(recipe, tokenizer_file)
    for step in range(first_step + worker, recipe.n_steps, recipe.n_workers):
        queue.put(maker.batch(step))
