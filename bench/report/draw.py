#!/usr/bin/env python3
"""Draws the figures of docs/report from bench/results, and nothing else.

    bench/report/draw.py                                    docs/report/figures/*.svg
    bench/report/draw.py --check                            compares with what is there; 1 if a figure differs
    bench/report/draw.py --results DIR --out DIR            of other results

Needs matplotlib (bench/report/requirements.txt; `make bench-quick` and `make report` use build/venv). The same
results and the pinned version give the same bytes; with another version --check compares the numbers in the drawings.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import figures_attention  # noqa: E402
import figures_offline  # noqa: E402
import figures_serving  # noqa: E402
import matplotlib  # noqa: E402
import selection  # noqa: E402
import style  # noqa: E402

FIGURES = [
    ("00_lengths", 0, "lengths", figures_serving.length_distributions),
    ("01_attention_time", 1, "attention", figures_attention.attention_latency),
    ("01_attention_speedup", 1, "attention", figures_attention.attention_speedup),
    ("02_flash_decoding", 2, "flash_decoding", lambda results, _: figures_attention.flash_decoding_table(results)),
    ("03_offline", 3, "offline", figures_offline.offline_throughput),
    ("04_mmlu", 4, "mmlu", figures_offline.mmlu_time),
    ("05_interactive", 5, "interactive", figures_serving.interactive_latency),
    ("06_synthetic", 6, "synthetic", figures_offline.synthetic_throughput),
    ("07_models", 7, "models", figures_offline.model_speedups),
    ("08_ablations", 8, "ablations", figures_offline.ablation_rates),
    ("09_beyond_jobs", 9, "beyond", figures_offline.beyond_jobs),
    ("09_trees", 9, "trees", figures_attention.tree_speedups),
    ("09_beyond_steps", 9, "beyond", figures_offline.beyond_steps),
    ("10_prompt_phase", 10, "prompt_phase", figures_offline.prompt_phase),
    ("11_peers", 11, "peers", figures_offline.beside_peers),
]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def drawings(folder):
    """(file name, SVG text) of each figure whose experiment has results."""
    published = selection.Published(folder if (folder / selection.PUBLISHED).exists() else ROOT / "bench" / "results")
    for name, number, stem, draw in FIGURES:
        results = selection.load(folder, number, stem)
        figure = draw(results, published) if results else None
        if figure is not None:
            yield f"{name}.svg", style.svg_of(figure)


def pinned():
    text = (Path(__file__).resolve().parent / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r"^matplotlib==(\S+)", text, re.MULTILINE).group(1)


def numbers(text):
    return [round(float(number), 1) for number in NUMBER.findall(text)]


def is_same(text, other):
    """Byte for byte with the pinned matplotlib, otherwise by the numbers of the drawing."""
    return text == other or matplotlib.__version__ != pinned() and numbers(text) == numbers(other)


def check(drawn, out):
    """Lines that say what differs between the drawings and the files."""
    names = set()
    for name, text in drawn:
        names.add(name)
        path = out / name
        if not path.exists():
            yield f"{path}: is not there; run bench/report/draw.py"
        elif not is_same(path.read_text(encoding="utf-8"), text):
            yield f"{path}: is not what the results draw; run bench/report/draw.py"
    for path in sorted(out.glob("*.svg")):
        if path.name not in names:
            yield f"{path}: no result draws it"


def main():
    parser = argparse.ArgumentParser(description="Draws the figures of docs/report from bench/results")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "report" / "figures")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    drawn = list(drawings(arguments.results))
    if arguments.check:
        wrong = list(check(drawn, arguments.out))
        print("\n".join(wrong) or f"figures: {len(drawn)}, each as its results draw it")
        return 1 if wrong else 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.out.glob("*.svg"):
        path.unlink()
    for name, text in drawn:
        (arguments.out / name).write_text(text, encoding="utf-8")
    print(f"figures: {len(drawn)} in {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
