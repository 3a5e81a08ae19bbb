#!/usr/bin/env python3
"""Makes models/demo: trains tokenizer and model on synthetic catalogues, exports, scores, writes the demo's files.

    train_demo_model.py tokenizer              models/demo/tokenizer.json, tokenizer_config.json
    train_demo_model.py train                  train on one GPU (resumes from build/demo_model/), then export
    train_demo_model.py tune                   a short training of --start-from on the CPU, then export
    train_demo_model.py score                  exact greedy answers of Transformers over fresh catalogues
    train_demo_model.py files                  models/demo/catalogue.txt, questions.jsonl

Needs PyTorch, Transformers, tokenizers, safetensors and NumPy.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from demo_model import catalogue, questions, tokenizer
from demo_model.rows import Recipe

ROOT = Path(__file__).resolve().parent.parent
N_DEMO_ITEMS = 64
N_DEMO_QUESTIONS = 256


def _demo_questions(rng: random.Random, items: list[catalogue.Item], types: tuple[str, ...]) -> Iterator[dict]:
    seen: set[str] = set()
    while len(seen) < N_DEMO_QUESTIONS:
        question = questions.ask(rng, items, types[len(seen) % len(types)])
        if question.text in seen:
            continue
        seen.add(question.text)
        yield {
            "id": f"q{len(seen):03d}",
            "messages": [{"role": "user", "content": question.text}],
            "prefix": "shop",
            "max_tokens": 96,
            "temperature": 0,
            "answer": question.answer,
            "type": question.type,
        }


def write_files(folder: Path, seed: int) -> None:
    """The held-out catalogue and its questions, from a seed that no training row uses."""
    rng = random.Random(f"demo/{seed}")
    items = catalogue.random_catalogue(rng, N_DEMO_ITEMS)
    (folder / "catalogue.txt").write_text(catalogue.system_prompt(items) + "\n")
    lines = [json.dumps(line) for line in _demo_questions(rng, items, questions.FIRST_TYPES)]
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n")


def _train(arguments: argparse.Namespace) -> int:
    import torch
    from demo_model.network import export
    from demo_model.training import Trainer

    recipe = Recipe(
        seed=arguments.seed,
        n_steps=arguments.steps,
        lr=arguments.lr,
        cheaper_share=arguments.cheaper_share,
        small_first=arguments.small_first,
        json_row_share=arguments.json_rows,
        tool_row_share=arguments.tool_rows,
        json_talk_share=arguments.json_talks,
        n_workers=max(1, min(15, (os.cpu_count() or 2) - 1)),
    )
    trainer = Trainer(recipe, arguments.folder / "tokenizer.json", arguments.checkpoint, arguments.start_from)
    print(f"{recipe} on {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    finished = trainer.train(arguments.stop_after_s, arguments.finish_in_s)
    export(trainer.network, arguments.folder)
    print(f"{'finished' if finished else 'stopped'} at step {trainer.step}", flush=True)
    return 0


def _tune(arguments: argparse.Namespace) -> int:
    import torch
    from demo_model.network import export
    from demo_model.tuning import Tuner

    if min(arguments.short_every, arguments.full_every) != 1:
        sys.exit("train_demo_model.py: --short-every or --full-every must be 1, and neither less: each step learns from some rows")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    recipe = Recipe(
        seed=arguments.seed,
        n_steps=arguments.steps,
        lr=arguments.lr,
        cheaper_share=arguments.cheaper_share,
        small_first=False,
        tool_row_share=arguments.tool_rows,
        json_talk_share=arguments.json_talks,
    )
    tuner = Tuner(recipe, arguments.folder / "tokenizer.json", arguments.start_from)
    saved = time.monotonic()
    for _ in tuner.tune(arguments.short_every, arguments.full_every, arguments.finish_in_s):
        if time.monotonic() - saved > arguments.save_every_s:
            export(tuner.network, arguments.folder)
            saved = time.monotonic()
    export(tuner.network, arguments.folder)
    print(f"{tuner.step} steps of {recipe}", flush=True)
    return 0


def _score(arguments: argparse.Namespace) -> int:
    import torch
    from demo_model.scoring import fresh_cases, sample_json, score

    cases = fresh_cases(arguments.seed, arguments.catalogues)
    print(sample_json(arguments.folder, arguments.seed, arguments.json_samples), flush=True)
    for dtype in (torch.bfloat16, torch.float32):
        start = time.monotonic()
        table = score(arguments.folder, cases, dtype)
        seconds = time.monotonic() - start
        print(
            f"\ncompute {dtype}, seed {arguments.seed}, {arguments.catalogues} catalogues, {seconds:.0f} s\n{table}\n",
            flush=True,
        )
    return 0


def main() -> int:
    """Runs one of the five steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "models/demo")
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("tokenizer").add_argument("--seed", type=int, default=1)
    train = steps.add_parser("train")
    train.add_argument("--seed", type=int, default=1)
    train.add_argument("--steps", type=int, default=12000)
    train.add_argument("--lr", type=float, default=2e-3)
    train.add_argument("--start-from", type=Path, help="model.safetensors to continue from")
    train.add_argument("--cheaper-share", type=float, default=0.08, help="share of cheaper-of-two questions")
    train.add_argument("--stop-after-s", type=float, default=1e9, help="save and stop after so many seconds")
    train.add_argument("--finish-in-s", type=float, default=math.inf, help="end the decay of the learning rate by then")
    train.add_argument("--no-small-first", dest="small_first", action="store_false", help="catalogues of all sizes at once")
    train.add_argument("--json-rows", type=float, default=Recipe.json_row_share, help="share of rows without a catalogue")
    train.add_argument("--tool-rows", type=float, default=Recipe.tool_row_share, help="share of rows with functions")
    train.add_argument("--json-talks", type=float, default=Recipe.json_talk_share, help="share of conversations with JSON")
    train.add_argument("--checkpoint", type=Path, default=ROOT / "build/demo_model/checkpoint.pt")
    tune = steps.add_parser("tune")
    tune.add_argument("--seed", type=int, default=1)
    tune.add_argument("--steps", type=int, default=300)
    tune.add_argument("--lr", type=float, default=3e-4)
    tune.add_argument("--start-from", type=Path, required=True, help="model.safetensors to continue from")
    tune.add_argument("--json-talks", type=float, default=Recipe.json_talk_share, help="share of conversations with JSON")
    tune.add_argument("--tool-rows", type=float, default=0.15, help="share of full rows with functions")
    tune.add_argument("--cheaper-share", type=float, default=0.12, help="share of cheaper-of-two questions")
    tune.add_argument("--short-every", type=int, default=1, help="rows without a catalogue in every N-th step")
    tune.add_argument("--full-every", type=int, default=3, help="a full row, which costs twice as much, in every N-th step")
    tune.add_argument("--finish-in-s", type=float, default=math.inf, help="end the decay of the learning rate by then")
    tune.add_argument("--save-every-s", type=float, default=math.inf, help="export the weights every so many seconds as well")
    tune.add_argument("--threads", type=int, default=0, help="threads; 0: PyTorch's choice")
    score = steps.add_parser("score")
    score.add_argument("--seed", type=int, default=2)
    score.add_argument("--catalogues", type=int, default=500)
    score.add_argument("--json-samples", type=int, default=256)
    files = steps.add_parser("files")
    files.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.step == "train":
        return _train(arguments)
    if arguments.step == "tune":
        return _tune(arguments)
    if arguments.step == "score":
        return _score(arguments)
    if arguments.step == "tokenizer":
        tokenizer.write_tokenizer(tokenizer.train_tokenizer(arguments.seed), arguments.folder)
    else:
        write_files(arguments.folder, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
