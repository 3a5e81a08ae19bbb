#!/usr/bin/env python3
"""Experiment 7: offline throughput of more models, ShareGPT lengths (the RelayAttention paper's table 4).

    bench/experiments/experiment_07_models.py --device cuda

Shapes of Llama-2-13B, Llama-30B, Phi-2, Mistral-7B, Llama-3-8B and Qwen3-8B; fewer requests for the large ones, so
that an arm ends within 100 s.
"""

import sys

import harness
from experiment_03_offline import sharegpt_job
from harness import ARMS, Experiment

REQUESTS = {"llama-3-8b": 500, "llama-2-13b": 200, "phi-2": 500, "mistral-7b": 500, "qwen3-8b": 500, "llama-30b": 64}


def jobs(settings):
    shapes = REQUESTS if settings.is_full else {"llama-3-8b": settings.pick(0, 16, 4)}
    lengths = settings.pick([2048, 1024, 512], [1024], [256])
    made = []
    for shared in lengths:
        for shape, n_requests in shapes.items():
            made.append(sharegpt_job(settings, f"{shape}-{shared}", shape, shared, n_requests, ARMS, 1))
    return made


EXPERIMENT = Experiment(7, "models", "offline throughput of more models", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
