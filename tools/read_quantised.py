#!/usr/bin/env python3
"""Compares what Transformers reads of a checkpoint that `baton quantize` wrote with what Baton serves of it.

    tools/read_quantised.py BATON FOLDER [FOLDER...]

Each FOLDER is loaded by Transformers and compressed-tensors in float32, its weights widened and activations left as they are
(the configuration of int8 states them for engines without other kernels), and by `BATON serve`. Both score the same random
tokens. Prints the largest difference of log-probabilities, and exits 1 where one is over 1e-3. Needs PyTorch, Transformers and
compressed-tensors.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

sys.path.insert(0, str(Path(__file__).resolve().parent))
from weight_quality import scores, serving

N_PROMPTS = 4
LENGTH = 64
MOST = 1e-3


def copy_without_activations(folder: Path, copied: Path) -> None:
    """Links the files of a checkpoint beside a configuration that states weights alone."""
    for file in folder.iterdir():
        (copied / file.name).symlink_to(file.resolve())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for group in config["quantization_config"]["config_groups"].values():
        group["input_activations"] = None
    (copied / "config.json").unlink()
    (copied / "config.json").write_text(json.dumps(config), encoding="utf-8")


def largest_difference(baton: str, folder: str) -> float:
    """Of the log-probabilities that Baton lists, from those of Transformers."""
    n_vocab = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    draw = random.Random(1)
    prompts = [[draw.randrange(5, n_vocab) for _ in range(LENGTH)] for _ in range(N_PROMPTS)]
    config = CompressedTensorsConfig(run_compressed=False)
    with tempfile.TemporaryDirectory() as without_activations:
        copy_without_activations(Path(folder), Path(without_activations))
        model = AutoModelForCausalLM.from_pretrained(without_activations, dtype=torch.float32, quantization_config=config).eval()
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor(prompts)).logits.double(), dim=-1)
    rows = [(ids, range(1, LENGTH)) for ids in prompts]
    with serving(baton, [folder], "float32", []) as address:
        found = iter(list(scores(address, rows)))
    largest = 0.0
    for row in range(N_PROMPTS):
        for place in range(1, LENGTH):
            _, top = next(found)
            for token, logprob in top.items():
                largest = max(largest, abs(expected[row, place - 1, token].item() - logprob))
    return largest


def main() -> int:
    """Compares each folder."""
    baton, *folders = sys.argv[1:]
    failed = 0
    for folder in folders:
        difference = largest_difference(baton, folder)
        print(f"{folder}: log-probabilities differ by at most {difference:.2e}")
        failed |= difference > MOST
    return failed


if __name__ == "__main__":
    sys.exit(main())
