"""Random texts through `baton tokenize` and through the package `tokenizers`: the same ids, and the same text of random ids.

The tokenizers are those of tests/goldens/tokenizers and, where BATON_TEST_DATA names the folder of real ones, its. As many texts
as BATON_TOKENIZER_TEXTS says for each of them (1,000 where it is not set).
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest
import tokenizers
from conftest import BINARY, ROOT

sys.path.insert(0, str(ROOT / "tools"))
from goldens.real_tokenizers import real_tokenizers  # noqa: E402

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
OURS = sorted(path.parent.name for path in GOLDENS.glob("*/tokenizer.json"))


def baton(path: pathlib.Path, values: list, *flags: str) -> list:
    """What `baton tokenize` makes of each value."""
    lines = "".join(json.dumps(value) + "\n" for value in values)
    command = [BINARY, "tokenize", "--tokenizer", path, *flags]
    output = subprocess.run(command, input=lines.encode(), check=True, capture_output=True).stdout.decode()
    return [json.loads(line) for line in output.rstrip("\n").split("\n")]


def assert_same(path: pathlib.Path, expected: tokenizers.Tokenizer, seed: int) -> None:
    """Compares both ways, with and without special tokens, batch by batch."""
    special = [token.content for token in expected.get_added_tokens_decoder().values()]
    for begin in range(0, N_TEXTS, BATCH):
        n = min(BATCH, N_TEXTS - begin)
        batch = list(texts(seed + begin, n, special))
        for flags, adds in (((), True), (("--no-special-tokens",), False)):
            for text, ids in zip(batch, baton(path, batch, *flags), strict=True):
                assert ids == expected.encode(text, add_special_tokens=adds).ids, ascii(text)
        lists = list(id_lists(seed + begin, n, sorted(expected.get_vocab().values())))
        for ids, text in zip(lists, baton(path, lists, "--decode"), strict=True):
            assert text == expected.decode(ids, skip_special_tokens=False), ids


@pytest.mark.parametrize("name", OURS)
def test_ours_equal_the_package(name: str) -> None:
    """The small tokenizers of the goldens."""
    path = GOLDENS / name / "tokenizer.json"
    assert_same(path, tokenizers.Tokenizer.from_file(str(path)), seed=1)


@pytest.mark.skipif(DATA is None, reason="BATON_TEST_DATA is not set: real tokenizers are not compared")
@pytest.mark.parametrize("name", sorted(REAL))
def test_real_ones_equal_the_package(name: str, tmp_path: pathlib.Path) -> None:
    """Tokenizers that models ship."""
    path = tmp_path / "tokenizer.json"
    path.write_text(REAL[name])
    assert_same(path, tokenizers.Tokenizer.from_file(str(path)), seed=2)
