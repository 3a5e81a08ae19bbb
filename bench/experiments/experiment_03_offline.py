#!/usr/bin/env python3
"""Experiment 3: offline throughput against the length of the system prompt, ShareGPT lengths (the RelayAttention
paper's figure 7).

    bench/experiments/experiment_03_offline.py --device cuda

1,000 requests with ShareGPT's prompt and answer lengths after one system prompt, Llama-2-7B shape, all there at the
begin, caches cold.
"""

import sys

import harness
from harness import ARMS, Experiment
from offline_jobs import ARM_SECONDS, SHAREGPT_OUTPUT, SHAREGPT_OWN, estimated, throughput_job
from workloads import SHAREGPT, data_file

SHAPE = "llama-2-7b"


def sharegpt_job(settings, name, shape, shared, n_requests, arms, runs, limit=ARM_SECONDS, about=None, ranks=1, quantization=None):
    """`about`: more of the point."""

    def dataset():
        flags = ["--dataset-name", "sharegpt", "--dataset-path", data_file(SHAREGPT, settings.data)]
        flags += ["--num-prompts", n_requests, "--prefix-len", shared]
        return flags if settings.is_full else [*flags, "--output-len", settings.pick(0, 32, 8)]

    point = {"dataset": "sharegpt", "shared": shared, "requests": n_requests, **(about or {})}
    seconds = estimated(shape, n_requests, shared, SHAREGPT_OWN, SHAREGPT_OUTPUT, arms, runs, limit) if settings.is_full else 20
    return throughput_job(settings, name, shape, dataset, point, seconds / ranks**0.7, arms, runs, limit, ranks,
                          quantization)  # fmt: skip


def jobs(settings):
    n_requests = settings.pick(1000, 32, 8)
    lengths = settings.pick([2048, 1024, 512, 0, 256, 128, 64], [0, 512, 2048], [256])
    made = [sharegpt_job(settings, f"all-{shared}", SHAPE, shared, n_requests, ARMS, 1) for shared in lengths]
    if settings.scale != "smoke":
        # More repetitions of the two arms whose ratio matters most.
        made += [sharegpt_job(settings, f"more-{shared}", SHAPE, shared, n_requests, ARMS[:2], 1) for shared in lengths]
    if settings.is_full:
        # The one arm of this experiment that takes longer than a run may, to its end.
        made.append(sharegpt_job(settings, "whole-2048", SHAPE, 2048, n_requests, ("relay", "unshared"), 1, limit=0))
    return made


EXPERIMENT = Experiment(3, "offline", "offline throughput against the length of the system prompt", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
