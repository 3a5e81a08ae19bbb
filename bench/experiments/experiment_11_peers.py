#!/usr/bin/env python3
"""Experiment 11: beside the engines that people use, the same shapes of weights and the same requests. Baton's arms.

    bench/experiments/experiment_11_peers.py --device cuda

The points stand in bench/peers/engine_points.py. bench/peers/run_peers.sh runs vLLM's and Transformers' arms of them and
adds rows to the same file; both belong on one machine in one run. The jobs with ShareGPT's lengths are experiment 3's, which
writes their rows here, too.
"""

import sys
from pathlib import Path

import harness
from harness import ARMS, Experiment
from offline_jobs import decode_job, estimated, throughput_job

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import engine_points  # noqa: E402


def whole_job(settings, point):
    about = point.about
    # A second run of a job that takes longer than a few seconds differs by less than 0.5%.
    runs = settings.pick(1 if point.name in ("gsp-64x16", "strangers-256") else 2, 2)
    seconds = 10
    if settings.is_full:
        prompts = about.get("groups", 1) * about["shared"] / 38_000  # each prompt once, in each run of two arms
        sizes = (about["requests"], about["shared"], about["own"], about["output"])
        seconds = estimated(point.shape, *sizes, ARMS[:2], runs) + 2 * runs * prompts
    return throughput_job(settings, point.name, point.shape, lambda: point.dataset, {"name": point.name, **about}, seconds,
                          ARMS[:2], runs)  # fmt: skip


def steps_job(settings, shape, points):
    """The decode steps of a shape after one shared prompt, in one process: their points differ in the number of requests."""
    by_requests = {point.about["requests"]: point for point in points}
    about = points[0].about
    label = points[0].name.split("-")[1]
    return decode_job(settings, f"decode-{label}-{about['shared']}", shape, list(by_requests), about["shared"], about["own"],
                      lambda n: {"name": by_requests[n].name, "dataset": "decode"}, new=about["new"], runs=3)  # fmt: skip


def jobs(settings):
    if not settings.is_full:
        groups, per_group, system, output = settings.pick(None, (4, 8, 256, 16), (2, 2, 64, 4))
        small = engine_points.shared_prefix(f"gsp-{groups}x{per_group}", groups, per_group, system, 32, output)
        return [whole_job(settings, point)
                for point in (small, engine_points.strangers("strangers-8", 8, settings.pick(None, 128, 16), output))]  # fmt: skip
    left_out = engine_points.OVER_SEVERAL_GPUS + engine_points.OTHER_FAMILIES
    points = [one for one in engine_points.POINTS.values() if one.shape not in left_out]
    made = [whole_job(settings, one) for one in points if one.kind == "job" and one.about["dataset"] != "sharegpt"]
    steps = [one for one in points if one.kind == "decode"]
    for shape, shared in dict.fromkeys((one.shape, one.about["shared"]) for one in steps):
        made.append(steps_job(settings, shape, [one for one in steps if (one.shape, one.about["shared"]) == (shape, shared)]))
    return made


EXPERIMENT = Experiment(11, "peers", "beside the engines that people use", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
