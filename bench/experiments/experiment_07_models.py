#!/usr/bin/env python3
"""Experiment 7: offline throughput of more models, ShareGPT lengths (the RelayAttention paper's table 4).

    bench/experiments/experiment_07_models.py --device cuda

Shapes of Llama-2-13B, Llama-30B, Phi-2 and Mistral-7B with all arms at the table's lengths, 512 and 1024; at 2048 tokens, and of
newer models (Llama-3-8B, Qwen3-8B, Gemma 2, experts, recurrent layers), relay and paged, because what sharing nothing costs is
known from the others. Fewer requests for the large ones, so that an arm ends within 100 s. The jobs of Llama-30B and
Llama-2-13B are also those of experiment 12 on one GPU: they run once and their rows stand in both files.
"""

import sys

import harness
from experiment_03_offline import sharegpt_job
from harness import ARMS, Experiment
from offline_jobs import AlsoOf

OF_THE_PAPER = {"llama-2-13b": 200, "llama-30b": 64, "phi-2": 500, "mistral-7b": 500}
NEWER = {"llama-3-8b": 500, "qwen3-8b": 500, "gemma-2-9b": 200, "qwen3-30b-a3b": 100, "gpt-oss-20b": 200,
         "qwen3.5-35b-a3b": 100, "qwen3.5-27b": 100}  # fmt: skip
ALSO_OVER_SEVERAL = ("llama-2-13b", "llama-30b")


def also_of(shape, shared, n_requests):
    """The job of experiment 12 that is the same work."""
    if shape not in ALSO_OVER_SEVERAL:
        return ()
    about = {"model": shape, "dataset": "sharegpt", "shared": shared, "requests": n_requests, "ranks": 1}
    return (AlsoOf((12, "several_gpus"), f"{shape}-{shared}-tp1", about, ARMS),)


def jobs(settings):
    if not settings.is_full:
        return [sharegpt_job(settings, f"llama-3-8b-{shared}", "llama-3-8b", shared, settings.pick(0, 16, 4), ARMS, 1)
                for shared in settings.pick([], [1024], [256])]  # fmt: skip
    made = []
    for shared in (1024, 512, 2048):
        for shape, n_requests in (OF_THE_PAPER | NEWER).items():
            if shape in NEWER and shared == 1024:
                continue
            if shape in NEWER and shape != "llama-3-8b" and shared == 512 or shape == "llama-30b" and shared == 2048:
                continue
            arms = ARMS if shape in OF_THE_PAPER and shared != 2048 else ARMS[:2]
            also = also_of(shape, shared, n_requests)
            made.append(sharegpt_job(settings, f"{shape}-{shared}", shape, shared, n_requests, arms, 1, also=also))
    return made


EXPERIMENT = Experiment(7, "models", "offline throughput of more models", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
