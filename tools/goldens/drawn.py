"""Weights drawn from a seed: a golden's folder has a text in place of them. Needs only Python's standard library.

weights.txt has the line `seed N`, then for each file `file NAME ADLER32` and its tensors, one a line, in the file's order:
name, dtype (F32 or BF16), mean, spread, shape. Element i of all tensors, counted through all files, is made from output i
of SplitMix64. With n the sum of its four 16-bit parts less 131070, it is (mean * 2**17 + spread * n) / 2**27, rounded to
float32 and then to the dtype. So mean and spread are in 1/1024; the elements lie within mean +- spread, nearly normally
distributed with a standard deviation of spread / sqrt(12). tests/support/drawn_golden.cpp draws the same bytes.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
import zlib
from array import array
from dataclasses import dataclass
from pathlib import Path

MASK = (1 << 64) - 1
RECIPE = "weights.txt"


@dataclass(frozen=True)
class DrawnTensor:
    """One line of weights.txt."""

    name: str
    dtype: str
    mean: int
    spread: int
    shape: tuple[int, ...]

    @staticmethod
    def of(name: str, dtype: str, shape: tuple[int, ...], mean: float, deviation: float) -> DrawnTensor:
        """Of a mean and a standard deviation."""
        return DrawnTensor(name, dtype, round(1024 * mean), round(1024 * math.sqrt(12) * deviation), tuple(shape))

    def drawn(self, seed: int, first: int) -> bytes:
        """The elements; `first`: the number of elements before them."""
        mean = self.mean << 17

        def element(i: int) -> float:
            x = seed + (i + 1) * 0x9E3779B97F4A7C15 & MASK
            x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
            x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
            x ^= x >> 31
            noise = (x & 0xFFFF) + (x >> 16 & 0xFFFF) + (x >> 32 & 0xFFFF) + (x >> 48) - 131070
            return (mean + self.spread * noise) * 2.0**-27

        floats = array("f", map(element, range(first, first + math.prod(self.shape)))).tobytes()
        if self.dtype == "F32":
            return floats
        return array("H", ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in array("I", floats))).tobytes()


Files = dict[str, list[DrawnTensor]]  # by the file's name


def draw_files(seed: int, files: Files) -> dict[str, bytes]:
    """The bytes of each file, as `safetensors` writes it."""
    out = {}
    n_drawn = 0
    for file, tensors in files.items():
        header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
        data = bytearray()
        for tensor in tensors:
            begin = len(data)
            data += tensor.drawn(seed, n_drawn)
            n_drawn += math.prod(tensor.shape)
            header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, len(data)]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        out[file] = struct.pack("<Q", len(text)) + text + data
    return out


def write_recipe(folder: Path, seed: int, files: Files) -> dict[str, bytes]:
    """Writes weights.txt into a golden's folder. Returns what draw_files gives."""
    drawn = draw_files(seed, files)
    lines = [f"seed {seed}"]
    for file, tensors in files.items():
        lines.append(f"file {file} {zlib.adler32(drawn[file])}")
        lines += [" ".join(map(str, (t.name, t.dtype, t.mean, t.spread, *t.shape))) for t in tensors]
    (folder / RECIPE).write_text("\n".join(lines) + "\n")
    return drawn


def draw_into(folder: Path, golden: Path) -> None:
    """Makes `folder` a checkpoint: the JSON files of a golden's folder, and the weights that its weights.txt describes."""
    seed = 0
    files: Files = {}
    checksums = {}
    for line in (golden / RECIPE).read_text().splitlines():
        first, *words = line.split()
        if first == "seed":
            seed = int(words[0])
        elif first == "file":
            tensors = files[words[0]] = []
            checksums[words[0]] = int(words[1])
        else:
            dtype, mean, spread, *shape = words
            tensors.append(DrawnTensor(first, dtype, int(mean), int(spread), tuple(map(int, shape))))
    for file in golden.glob("*.json"):
        shutil.copy(file, folder)
    for file, drawn in draw_files(seed, files).items():
        if zlib.adler32(drawn) != checksums[file]:
            raise RuntimeError(f"{golden}: the bytes drawn for {file} are not those of {RECIPE}")
        (folder / file).write_bytes(drawn)
