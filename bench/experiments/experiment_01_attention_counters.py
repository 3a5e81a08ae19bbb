#!/usr/bin/env python3
"""Experiment 1, why measured and theoretical curves differ: what the attention kernel reads, by the GPU's counters.

    bench/experiments/experiment_01_attention_counters.py --device cuda

Nsight Compute (ncu) over three launches of each case: sectors that the multiprocessors read from the L2, and bytes from
memory, beside what the plan asks for and what is distinct. Left out where ncu is not there.
"""

import shutil
import sys
import tempfile
import time

import harness
from harness import Experiment, Job
from result_rows import REPOSITORY
from workloads import MissingData

sys.path.insert(0, str(REPOSITORY / "tools"))

import attention_counters  # noqa: E402

# Requests, shared, own, query heads, KV heads: short and long prefixes of experiment 1, many requests, and experiment 8's.
SHAPES = [(32, 128, 128, 52, 52), (32, 2048, 128, 52, 52), (32, 8192, 128, 52, 52), (32, 2048, 128, 32, 8), (128, 2048, 128, 32, 8)]
SHAPES += [(128, 0, 512, 40, 40)]


def counters_job(settings, shape):
    requests, shared, own, heads, kv_heads = shape

    def run(runner):
        if settings.device != "cuda" or not shutil.which("ncu"):
            raise MissingData("ncu, which reads the counters of a GPU, is not here")
        variables = [f"{name}={value}" for name, value in runner.environment.items()]
        bench = ["env", *variables, *settings.binary, "bench", "attention"]
        runner.command = f"baton bench attention --device cuda --requests {requests} --shared {shared} --own {own}"
        runner.command = f"ncu ... {runner.command} --heads {heads} --kv-heads {kv_heads}"
        for arm in ("relay", "paged"):
            runner.begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                profiled = attention_counters.profile_arm(bench, attention_counters.BASE, shape, arm, folder)
            if profiled is None:
                raise harness.CommandFailed(f"ncu gave no counters for {shape}, {arm}")
            launches, case = profiled
            sectors, memory, duration = ([launch.get(name) for launch in launches] for name in attention_counters.BASE)
            numbers = {
                "l2_read_bytes": [count * attention_counters.SECTOR_BYTES for count in sectors],
                "memory_bytes": memory,
                "kernel_ns": duration,
                "asked_bytes": case["arms"][0]["kv_bytes_requested"],
                **{key: case[key] for key in ("distinct_bytes", "query_bytes")},
            }
            point = {"requests": requests, "shared": shared, "own": own, "heads": heads, "kv_heads": kv_heads}
            runner.add(point, arm, numbers)

    return Job(f"counters-{'-'.join(map(str, shape))}", 11, run)


def jobs(settings):
    return [counters_job(settings, shape) for shape in SHAPES]


EXPERIMENT = Experiment(1, "attention_counters", "what the attention kernel reads", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
