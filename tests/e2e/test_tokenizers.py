"""Random texts through `baton tokenize` and through the package `tokenizers`: the same ids, and the same text of random ids.

The tokenizers are those of tests/goldens/tokenizers and, where BATON_TEST_DATA names the folder of real ones, its. As many texts
as BATON_TOKENIZER_TEXTS says for each of them and each way (1,000 where it is not set): 100,000 take about 20 seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pytest
import tokenizers
from conftest import BINARY, ROOT
from goldens.real_tokenizers import real_tokenizers

GOLDENS = ROOT / "tests/goldens/tokenizers"
DATA = os.environ.get("BATON_TEST_DATA")
N_TEXTS = int(os.environ.get("BATON_TOKENIZER_TEXTS", "1000"))
BATCH = 10_000

# Parts of Unicode, as often drawn from as they stand here; the last is all of it.
POOLS = [
    *[range(0x20, 0x7F)] * 4,
    range(0xA0, 0x250),
    range(0x300, 0x370),
    range(0x370, 0x600),
    range(0x5D0, 0xA00),
    range(0xE00, 0x1200),
    range(0x1680, 0x2100),
    range(0x2000, 0x2C00),
    range(0x3000, 0x3100),
    range(0x4E00, 0x4F00),
    range(0xAC00, 0xAD00),
    range(0xF900, 0x10000),
    range(0x10000, 0x13000),
    range(0x1D400, 0x1D800),
    range(0x1F300, 0x1FB00),
    [0x20, 0x20, 0x0A, 0x09, 0x0D, 0xA0, 0x3000, 0x2028, 0x85, 0x200D, 0x30FC, 0x2581],
    [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000],
]
WORDS = ["the", " the", " and", "'s", "'LL", "ing", " don't", "123", "4567", "  ", "    ", "\n\n", "\t\t", "...", "://", "é", "的"]


def texts(seed: int, n: int, special: list[str]) -> Iterator[str]:
    """`n` texts of up to 40 characters, words and added tokens."""
    rng = random.Random(seed)
    for _ in range(n):
        parts = []
        pool = rng.choice(POOLS)
        for _ in range(rng.randrange(40)):
            kind = rng.random()
            if kind < 0.6:
                parts.append(chr(rng.choice(pool if kind < 0.3 else rng.choice(POOLS))))
            elif kind < 0.97 or not special:
                parts.append(rng.choice(WORDS))
            else:
                parts.append(rng.choice(special))
        yield "".join(parts)


def id_lists(seed: int, n: int, ids: list[int]) -> Iterator[list[int]]:
    """`n` lists of up to 20 of the ids."""
    rng = random.Random(seed)
    for _ in range(n):
        yield rng.choices(ids, k=rng.randrange(20))


REAL = {} if DATA is None else real_tokenizers(pathlib.Path(DATA))
OURS = {path.parent.name: path for path in [*GOLDENS.glob("*/tokenizer.json"), ROOT / "models/demo/tokenizer.json"]}


def same(
    folder: pathlib.Path, path: pathlib.Path, values: Iterable, answers: Callable[[list], list], flags: tuple[str, ...]
) -> None:
    """Compares what `baton tokenize` makes of each value with `answers`, which takes a batch of values."""
    lines, output = folder / "lines.jsonl", folder / "output.jsonl"
    with lines.open("w") as file:
        file.writelines(json.dumps(value) + "\n" for value in values)
    with lines.open("rb") as file, output.open("wb") as answer:
        subprocess.run([BINARY, "tokenize", "--tokenizer", path, *flags], stdin=file, stdout=answer, check=True)
    n_compared = 0
    with lines.open() as file, output.open() as answer:
        while batch := [json.loads(line) for line in itertools.islice(file, BATCH)]:
            ours = [json.loads(line) for line in itertools.islice(answer, BATCH)]
            for value, one, other in zip(batch, ours, answers(batch), strict=True):
                assert one == other, ascii(value)
            n_compared += len(batch)
        assert answer.read() == ""
    assert n_compared == N_TEXTS


def assert_same(folder: pathlib.Path, path: pathlib.Path, seed: int) -> None:
    """Compares both ways, with and without special tokens: one process of Baton for each."""
    expected = tokenizers.Tokenizer.from_file(str(path))
    special = [token.content for token in expected.get_added_tokens_decoder().values()]

    def encoded(batch: list[str], adds: bool) -> list[list[int]]:
        return [encoding.ids for encoding in expected.encode_batch_fast(batch, add_special_tokens=adds)]

    same(folder, path, texts(seed, N_TEXTS, special), lambda batch: encoded(batch, True), ())
    same(folder, path, texts(seed + 1, N_TEXTS, special), lambda batch: encoded(batch, False), ("--no-special-tokens",))
    ids = sorted(expected.get_vocab().values())
    decoded = partial(expected.decode_batch, skip_special_tokens=False)
    same(folder, path, id_lists(seed, N_TEXTS, ids), decoded, ("--decode",))


@pytest.mark.parametrize("name", sorted(OURS))
def test_ours_equal_the_package(name: str, tmp_path: pathlib.Path) -> None:
    """The small tokenizers of the goldens, and the demo model's."""
    assert_same(tmp_path, OURS[name], seed=1)


@pytest.mark.skipif(DATA is None, reason="BATON_TEST_DATA is not set: real tokenizers are not compared")
@pytest.mark.parametrize("name", sorted(REAL))
def test_real_ones_equal_the_package(name: str, tmp_path: pathlib.Path) -> None:
    """Tokenizers that models ship."""
    path = tmp_path / "tokenizer.json"
    path.write_text(REAL[name])
    assert_same(tmp_path, path, seed=3)
