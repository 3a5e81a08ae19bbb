#!/usr/bin/env python3
"""Experiment 13: weights in 8 and 4 bits beside 16: decode steps behind a shared prompt, and experiment 3's jobs.

    bench/experiments/experiment_13_quantised.py --device cuda

The weights are rounded while they load (`--quantization`): fp8 with a scale a row, int4 in groups of 128. Relay saves reads
of keys and values, and quantised weights leave less else to read, so relay over paged should grow. bench/peers/run_peers.sh
adds vLLM's steps with the same forms of weights; both belong on one machine in one run.
"""

import sys
from pathlib import Path

import harness
from experiment_03_offline import SHAPE, sharegpt_job
from harness import ARMS, Experiment
from offline_jobs import decode_job, load_seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

from engine_points import DECODE_NEW, DECODE_OWN, QUANTISED  # noqa: E402

STEPS_SHAPE = "llama-3-8b"


def steps_job(settings, quantization):
    requests = settings.pick([1, 8, 32, 128], [1, 8], [2])
    shared, own, new = settings.pick((2048, DECODE_OWN, DECODE_NEW), (512, 32, 16), (64, 16, 4))
    seconds = (load_seconds(STEPS_SHAPE) if settings.is_full else 2) + 15
    return decode_job(settings, f"decode-{quantization}", STEPS_SHAPE, requests, shared, own, {"quantization": quantization},
                      seconds, new=new, quantization=quantization)  # fmt: skip


def jobs(settings):
    made = [steps_job(settings, quantization) for quantization in QUANTISED]
    n_requests = settings.pick(1000, 32, 8)
    for shared in settings.pick([2048, 512], [512], []):
        for quantization in QUANTISED:
            made.append(sharegpt_job(settings, f"offline-{quantization}-{shared}", SHAPE, shared, n_requests, ARMS[:2], 1,
                                     about={"quantization": quantization}, quantization=quantization))  # fmt: skip
    return made


EXPERIMENT = Experiment(13, "quantised", "weights in 8 and 4 bits beside 16", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
