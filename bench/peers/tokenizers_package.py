#!/usr/bin/env python3
"""Text to ids on one thread: Baton beside the Python package `tokenizers`, as a table.

    BATON_TEST_DATA=DATA bench/peers/tokenizers_package.py build/cpu-release/bench/text_tokenizer_bench

Needs the package tokenizers, and DATA's folders tokenizers and text-corpora. In each of --runs rounds every cell is measured by
one after the other: Baton's benchmark for half a second, then the package for as long (encode_batch_fast with a batch of one, or
of all lines: no offsets; RAYON_NUM_THREADS=1). Both keep the words they have seen. Numbers are medians of the rounds in MB of
text per second, with the least and the largest ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from goldens.real_tokenizers import real_tokenizers, unpacked  # noqa: E402

N_CHARACTERS = 400_000
SECONDS = 0.5


def write_inputs(folder: Path, data: Path) -> None:
    """The tokenizers and two texts: prose, and random characters of many scripts."""
    for name, text in real_tokenizers(data).items():
        (folder / f"{name}.json").write_text(text)
    unigram = ROOT / "tests/goldens/tokenizers/unigram/tokenizer.json"
    (folder / "unigram.json").write_text(unigram.read_text())
    (folder / "prose.txt").write_text(unpacked(data / "text-corpora/war-and-peace.txt.zst")[:N_CHARACTERS])
    rng = random.Random(1)
    blocks = [(0x61, 0x7B), (0x61, 0x7B), (0xE0, 0x250), (0x3B1, 0x3CA), (0x430, 0x450), (0x4E00, 0x9000), (0xAC00, 0xD7A0)]
    words = []
    for _ in range(N_CHARACTERS // 8):
        first, end = rng.choice(blocks)
        words.append("".join(chr(rng.randrange(first, end)) for _ in range(rng.randrange(1, 8))) + rng.choice("   \n,."))
    (folder / "scripts.txt").write_text("".join(words))


def rate_of_baton(program: str, folder: Path, cell: str) -> float:
    """Bytes per second."""
    command = [program, f"--benchmark_filter=^encode/{cell}$", f"--benchmark_min_time={SECONDS}", "--benchmark_format=json"]
    environment = os.environ | {"BATON_BENCH_TOKENIZERS": str(folder)}
    output = subprocess.run(command, check=True, capture_output=True, env=environment, text=True).stdout
    return json.loads(output)["benchmarks"][0]["bytes_per_second"]


def rate_of_package(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> float:
    """Bytes per second."""
    n_bytes = sum(len(text.encode()) for text in texts)
    tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    rounds = 0
    begin = time.process_time()
    while time.process_time() - begin < SECONDS:
        tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        rounds += 1
    return rounds * n_bytes / (time.process_time() - begin)


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="Baton's text_tokenizer_bench")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="names of tokenizers")
    arguments = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, {arguments.runs} rounds\n")
    print("| tokenizer | text | way | Baton, MB/s | tokenizers, MB/s | ratio | least to largest |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, Path(os.environ["BATON_TEST_DATA"]))
        for file in sorted(folder.glob("*.json")):
            if arguments.only and file.stem not in arguments.only:
                continue
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
            for text in sorted(folder.glob("*.txt")):
                whole = text.read_text()
                for way, texts in (("text", [whole]), ("lines", whole.splitlines(keepends=True))):
                    pairs = [
                        (
                            rate_of_baton(arguments.program, folder, f"{file.stem}/{text.stem}/{way}"),
                            rate_of_package(tokenizer, texts),
                        )
                        for _ in range(arguments.runs)
                    ]
                    ratios = sorted(ours / theirs for ours, theirs in pairs)
                    ours, theirs = (statistics.median(column) / 1e6 for column in zip(*pairs, strict=True))
                    print(
                        f"| {file.stem} | {text.stem} | {way} | {ours:.1f} | {theirs:.1f} | {statistics.median(ratios):.2f} "
                        f"| {ratios[0]:.2f} to {ratios[-1]:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
