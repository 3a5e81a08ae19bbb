"""The points of experiments 11 to 13: work that Baton and other engines do with the same weight shapes and the same requests.

job      requests that are all there at the begin, caches cold: --dataset-name and its flags of `baton bench throughput`
decode   steps of requests that are all running, prompts cached: `baton bench decode`
cached   the cases of `baton bench prefix-cache` (prefix_cases.py)
"""

import dataclasses
import json
import os
from pathlib import Path

import drawn_requests

HERE = Path(__file__).resolve().parent
SHAPES = HERE.parent / "shapes"
OVER_SEVERAL_GPUS = ("llama-30b",)  # shapes of experiment 12 alone
RECURRENT = ("qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3.5-4b")  # layers of Gated DeltaNet beside attention
OTHER_FAMILIES = ("gpt-oss-20b", "ministral-3-8b", *RECURRENT)  # no jobs of Baton's experiments; the rows have a file of their own
QUANTISED = ("none", "fp8", "int4")  # weights of experiment 13: 16 bits, 8-bit floats, 4-bit integers in groups of 128
MAX_NUM_SEQS, MAX_BATCHED_TOKENS, MAX_MODEL_LEN = 256, 16384, 8704
RECURRENT_SEQS, RECURRENT_BATCHED_TOKENS = 128, 8192  # two engines of 27 billion parameters stand beside each other
DECODE_OWN, DECODE_NEW = 160, 64  # own context of a decode step: 160 to 223 tokens
TABLES = ("ShareGPT_stat.csv", "sharegpt/ShareGPT_stat.csv")


class MissingData(Exception):
    """A file that a point needs is not there."""


@dataclasses.dataclass(frozen=True)
class Point:
    name: str
    shape: str  # a folder of bench/shapes
    kind: str  # job, decode or cached
    about: dict  # what identifies the point in a row
    dataset: tuple = ()  # flags of `baton bench throughput` that make the requests

    @property
    def in_row(self):
        return {"name": self.name, "model": self.shape, **self.about}


def shared_prefix(name, groups, per_group, system, question=128, output=256):
    dataset = ("--dataset-name", "generated-shared-prefix", "--gsp-num-groups", groups, "--gsp-prompts-per-group", per_group,
               "--gsp-system-prompt-len", system, "--gsp-question-len", question, "--gsp-output-len", output)  # fmt: skip
    about = {"dataset": "generated-shared-prefix", "groups": groups, "requests": groups * per_group, "shared": system}
    return Point(name, "llama-3-8b", "job", about | {"own": question, "output": output}, dataset)


def strangers(name, n_requests, own, output):
    dataset = ("--dataset-name", "random", "--num-prompts", n_requests, "--random-input-len", own, "--random-output-len", output)
    about = {"dataset": "random", "requests": n_requests, "shared": 0, "own": own, "output": output}
    return Point(name, "llama-3-8b", "job", about, dataset)


def sharegpt(shared, n_requests=1000):
    about = {"dataset": "sharegpt", "shared": shared, "requests": n_requests}
    dataset = ("--dataset-name", "sharegpt", "--num-prompts", n_requests, "--prefix-len", shared)
    return Point(f"sharegpt-{shared}", "llama-2-7b", "job", about, dataset)


def decode(shape, label, requests, shared):
    about = {"dataset": "decode", "requests": requests, "shared": shared, "own": DECODE_OWN, "new": DECODE_NEW}
    return Point(f"decode-{label}-{requests}-{shared}", shape, "decode", about)


def cached(shape):
    return Point(f"cached-{shape}", shape, "cached", {"dataset": "prefix-cache"})


POINTS = {
    point.name: point
    for point in (
        shared_prefix("gsp-64x16", 64, 16, 2048),
        shared_prefix("gsp-4x64", 4, 64, 4096),
        strangers("strangers-256", 256, 1024, 128),
        *(sharegpt(shared) for shared in (2048, 1024, 512)),
        *(decode("llama-3-8b", "8b", requests, 2048) for requests in (1, 8, 32, 64, 128, 256)),
        decode("llama-3-8b", "8b", 128, 8192),
        *(decode("llama-2-7b", "7b", requests, 2048) for requests in (1, 32, 128)),
        *(decode("llama-30b", "30b", requests, 2048) for requests in (1, 32, 128)),
        *(decode(shape, shape, requests, 2048) for shape in OTHER_FAMILIES for requests in (1, 8, 32, 128)),
        *(cached(shape) for shape in RECURRENT),
        # What PyTorch's users have: one system prompt, own prompts of 128 tokens, 128 new ones.
        *(Point(f"one-prompt-{shared}", "llama-2-7b", "job",
                {"dataset": "random", "requests": 128, "shared": shared, "own": 128, "output": 128},
                ("--dataset-name", "random", "--num-prompts", 128, "--random-input-len", 128, "--random-output-len", 128,
                 "--prefix-len", shared))
          for shared in (0, 1024, 2048)),
    )
}  # fmt: skip


def shape_folder(shape):
    """The folder with the shape's config.json. Errors: MissingData."""
    folder = SHAPES / shape
    if not (folder / "config.json").exists():
        raise MissingData(f"{folder} has no config.json")
    return folder


def n_vocab(shape):
    return json.loads((shape_folder(shape) / "config.json").read_text(encoding="utf-8"))["vocab_size"]


def sharegpt_table(given=None):
    """ShareGPT_stat.csv in the folder `given` or in BATON_TEST_DATA. Errors: MissingData."""
    for folder in filter(None, (given, os.environ.get("BATON_TEST_DATA"))):
        for name in TABLES:
            if (Path(folder) / name).exists():
                return Path(folder) / name
    raise MissingData("ShareGPT_stat.csv: name its folder by --data or BATON_TEST_DATA, unpacked (docs/workloads.md)")


def requests_of(point, data=None, seed=0):
    """[(prompt, output_len)] of a job: those of `baton bench throughput` with the point's flags. Errors: MissingData."""
    about, vocabulary = point.about, n_vocab(point.shape)
    if about["dataset"] == "generated-shared-prefix":
        per_group = about["requests"] // about["groups"]
        return drawn_requests.shared_prefix_requests(
            vocabulary, about["groups"], per_group, about["shared"], about["own"], about["output"], seed
        )
    if about["dataset"] == "sharegpt":
        return drawn_requests.sharegpt_requests(vocabulary, sharegpt_table(data), about["requests"], about["shared"], seed)
    return drawn_requests.random_requests(
        vocabulary, about["requests"], about["own"], about["output"], seed, prefix_len=about["shared"]
    )


def chosen(names, shape=None, kinds=("job", "decode", "cached")):
    """The points of these names in their order, for one shape if it is given. Errors: KeyError names an unknown one."""
    points = [POINTS[name] for name in names] if names else list(POINTS.values())
    return [point for point in points if (shape is None or point.shape == shape) and point.kind in kinds]
