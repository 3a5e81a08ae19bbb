#!/usr/bin/env python3
"""Experiment 3: offline throughput against the length of the system prompt, ShareGPT lengths (the RelayAttention
paper's figure 7).

    bench/experiments/experiment_03_offline.py --device cuda

1,000 requests with ShareGPT's prompt and answer lengths after one system prompt, Llama-2-7B shape, all there at the
begin, caches cold. After 2,048 tokens every arm runs to its end. Without a system prompt and after 64 tokens the unshared arm is
left out: on 2026-11-22 it took 1.00 and 1.08 of relay's time. The jobs of 512, 1024 and 2048 tokens are also those of
experiment 11, and of experiment 13 with weights in 16 bits: they run once and their rows stand in both files.
"""

import sys

import harness
from harness import ARMS, Experiment
from offline_jobs import ARM_SECONDS, SHAREGPT_OUTPUT, SHAREGPT_OWN, AlsoOf, estimated, longest_answer, throughput_job
from workloads import SHAREGPT, data_file

SHAPE = "llama-2-7b"


def sharegpt_job(
    settings, name, shape, shared, n_requests, arms, runs, limit=ARM_SECONDS, about=None, ranks=1, quantization=None, also=()
):
    """`about`: more of the point."""

    def dataset():
        flags = ["--dataset-name", "sharegpt", "--dataset-path", data_file(SHAREGPT, settings.data)]
        flags += ["--num-prompts", n_requests, "--prefix-len", shared]
        return flags if settings.is_full else [*flags, "--output-len", settings.pick(0, 32, 8)]

    point = {"dataset": "sharegpt", "shared": shared, "requests": n_requests, **(about or {})}
    seconds = 20
    if settings.is_full:
        lengths = (SHAREGPT_OWN, SHAREGPT_OUTPUT)
        seconds = estimated(shape, n_requests, shared, *lengths, arms, runs, limit, longest_answer(n_requests))
    return throughput_job(settings, name, shape, dataset, point, seconds / ranks**0.7, arms, runs, limit, ranks, quantization,
                          also)  # fmt: skip


def also_of(settings, shared, n_requests):
    """The jobs of experiments 11 and 13 that are the same work."""
    if not settings.is_full or shared not in (512, 1024, 2048):
        return ()
    about = {"model": SHAPE, "dataset": "sharegpt", "shared": shared, "requests": n_requests}
    name = f"sharegpt-{shared}"
    others = [AlsoOf((11, "peers"), name, {"name": name, **about})]
    if shared != 1024:
        others.append(AlsoOf((13, "quantised"), f"offline-none-{shared}", {**about, "quantization": "none"}))
    return tuple(others)


def jobs(settings):
    n_requests = settings.pick(1000, 32, 8)
    lengths = settings.pick([2048, 512, 1024, 128, 256, 0, 64], [0, 512, 2048], [256])
    without_unshared = settings.pick((0, 64), ())
    made = []
    for shared in lengths:
        arms = ARMS[:2] if shared in without_unshared else ARMS
        limit = 0 if shared == 2048 else ARM_SECONDS
        also = also_of(settings, shared, n_requests)
        made.append(sharegpt_job(settings, f"all-{shared}", SHAPE, shared, n_requests, arms, 1, limit, also=also))
    if settings.scale != "smoke":
        # A second run of the two arms whose ratio matters most; at other lengths it differed by less than 1% (2026-11-22).
        for shared in settings.pick([2048], lengths):
            also = also_of(settings, shared, n_requests)
            made.append(sharegpt_job(settings, f"more-{shared}", SHAPE, shared, n_requests, ARMS[:2], 1, also=also))
    return made


EXPERIMENT = Experiment(3, "offline", "offline throughput against the length of the system prompt", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
