#!/usr/bin/env python3
"""Experiment 12: one model over several GPUs of a host: decode steps, and the rows of the RelayAttention paper's table 4
that it measured on two GPUs.

    bench/experiments/run_all.py --device cuda --gpus 2 --only 12

The same jobs run on one GPU, whole ones as experiment 7's, which writes their rows here, too. bench/peers/run_peers.sh adds
vLLM's steps over two GPUs (vllm-tp2).
"""

import sys

import harness
from experiment_03_offline import sharegpt_job
from harness import ARMS, Experiment
from offline_jobs import decode_job

REQUESTS = {"llama-30b": 64, "llama-2-13b": 200}


def steps_job(settings, shape, ranks):
    requests = settings.pick([1, 32, 128], [1, 8], [2])
    shared, own, new = settings.pick((2048, 160, 64), (512, 32, 16), (64, 16, 4))
    return decode_job(settings, f"decode-{shape}-tp{ranks}", shape, requests, shared, own, {"ranks": ranks}, new=new, ranks=ranks)


def jobs(settings):
    ranks = settings.pick([2, 1, 4], [2, 1], [2])
    shapes = ["llama-3-8b", "llama-30b"] if settings.is_full else ["llama-3-8b"]
    made = [steps_job(settings, shape, n) for shape in shapes for n in ranks]
    models = REQUESTS if settings.is_full else {"llama-3-8b": settings.pick(0, 16, 4)}
    for n in ranks:
        for shape, n_requests in models.items():
            for shared in settings.pick([512, 1024, 2048], [1024], [256]):
                if settings.is_full and n == 1:
                    continue
                if shape == "llama-30b" and shared == 2048:
                    continue
                name, arms = f"{shape}-{shared}-tp{n}", ARMS[:2] if shared == 2048 else ARMS
                made.append(sharegpt_job(settings, name, shape, shared, n_requests, arms, 1, about={"ranks": n}, ranks=n))
    return made


EXPERIMENT = Experiment(12, "several_gpus", "one model over several GPUs of a host", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
