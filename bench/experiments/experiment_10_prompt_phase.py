#!/usr/bin/env python3
"""Experiment 10: relay in the prompt phase: own parts of 16 to 512 tokens behind one cached system prompt, one new
token each.

    bench/experiments/experiment_10_prompt_phase.py --device cuda

The system prompt is computed once in each run of the arms relay and paged, and by each request in the arm unshared.
"""

import sys

import harness
from harness import ARMS, Experiment
from offline_jobs import estimated, throughput_job

SHAPE = "llama-3-8b"


def prompt_job(settings, own, shared, n_requests, arms):
    dataset = ["--dataset-name", "random", "--random-input-len", own, "--random-output-len", 1, "--prefix-len", shared]
    dataset += ["--num-prompts", n_requests]
    point = {"dataset": "random", "shared": shared, "own": own, "output": 1, "requests": n_requests}
    runs = settings.pick(3 if own < 128 else 1, 2, 1)  # longer runs differed by less than 1% (2026-11-26)
    seconds = estimated(SHAPE, n_requests, shared, own, 1, arms, runs) if settings.is_full else 10
    return throughput_job(settings, f"own-{own}-shared-{shared}", SHAPE, lambda: dataset, point, seconds, arms, runs)


def jobs(settings):
    owns = settings.pick([16, 32, 64, 128, 256, 512], [16, 128], [16])
    made = [prompt_job(settings, own, settings.pick(2048, 1024, 256), settings.pick(512, 16, 4), ARMS[:2]) for own in owns]
    if settings.is_full:
        made += [prompt_job(settings, own, 8192, 512, ARMS[:2]) for own in (16, 64, 256)]
    return made


EXPERIMENT = Experiment(10, "prompt_phase", "relay in the prompt phase", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
