#!/usr/bin/env python3
"""Experiment 6: offline throughput with equal lengths: (64, 128), (128, 256), (256, 512) (the RelayAttention paper's
figure 10).

    bench/experiments/experiment_06_synthetic.py --device cuda

Every arm has as many requests as the largest batch, or half of it: a number of the point. More of them (1,000, 400 and 200 until
2026-11-26) only kept the unshared arm busy for longer.
"""

import sys

import harness
from harness import ARMS, Experiment
from offline_jobs import estimated, throughput_job

SHAPE = "llama-2-7b"


def synthetic_job(settings, own, output, shared, n_requests, arms, runs):
    dataset = ["--dataset-name", "random", "--random-input-len", own, "--random-output-len", output, "--prefix-len", shared]
    dataset += ["--num-prompts", n_requests]
    point = {"dataset": "random", "shared": shared, "own": own, "output": output, "requests": n_requests}
    seconds = estimated(SHAPE, n_requests, shared, own, output, arms, runs) if settings.is_full else 15
    return throughput_job(settings, f"{own}-{output}-{shared}", SHAPE, lambda: dataset, point, seconds, arms, runs)


def jobs(settings):
    lengths = settings.pick([(64, 128, 512), (128, 256, 256), (256, 512, 128)], [(64, 32, 24)], [(64, 8, 8)])
    shared = settings.pick([2048, 512, 128], [256, 1024], [256])
    return [
        synthetic_job(settings, own, output, prefix, n_requests, ARMS, 1)
        for prefix in shared
        for own, output, n_requests in lengths
    ]


EXPERIMENT = Experiment(6, "synthetic", "offline throughput with equal lengths", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
