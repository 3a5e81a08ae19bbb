#!/usr/bin/env python3
"""Experiment 11: beside the engines that people use, the same shapes of weights and the same requests. Baton's arms.

    bench/experiments/experiment_11_peers.py --device cuda

The points stand in bench/peers/engine_points.py. bench/peers/run_peers.sh runs vLLM's and Transformers' arms of them and
adds rows to the same file; both belong on one machine in one run.
"""

import sys
from pathlib import Path

import harness
from harness import ARMS, Experiment
from offline_jobs import SHAREGPT_OUTPUT, SHAREGPT_OWN, decode_job, estimated, load_seconds, throughput_job
from workloads import SHAREGPT, data_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import engine_points  # noqa: E402


def whole_job(settings, point):
    about = point.about
    is_sharegpt = about["dataset"] == "sharegpt"
    own, output = (SHAREGPT_OWN, SHAREGPT_OUTPUT) if is_sharegpt else (about["own"], about["output"])

    def dataset():
        return [*point.dataset, *(["--dataset-path", data_file(SHAREGPT, settings.data)] if is_sharegpt else [])]

    seconds = 10
    if settings.is_full:
        prefill = about.get("groups", 1) * about["shared"]  # each prompt once, in each of two runs of two arms
        seconds = estimated(point.shape, about["requests"], about["shared"], own, output, ARMS[:2], 2) + 4 * prefill / 38_000
    return throughput_job(settings, point.name, point.shape, dataset, {"name": point.name, **about}, seconds, ARMS[:2], 2)


def steps_job(settings, point):
    about = point.about
    seconds = load_seconds(point.shape) + 15 + about["requests"] / 8
    return decode_job(settings, point.name, point.shape, [about["requests"]], about["shared"], about["own"],
                      {"name": point.name, "dataset": "decode"}, seconds, new=about["new"])


def jobs(settings):
    left_out = engine_points.OVER_SEVERAL_GPUS + engine_points.OTHER_FAMILIES
    points = [one for one in engine_points.POINTS.values() if one.shape not in left_out]
    if not settings.is_full:
        groups, per_group, system, output = settings.pick(None, (4, 8, 256, 16), (2, 2, 64, 4))
        small = engine_points.shared_prefix(f"gsp-{groups}x{per_group}", groups, per_group, system, 32, output)
        points = [small, engine_points.strangers("strangers-8", 8, settings.pick(None, 128, 16), output)]
    return [whole_job(settings, point) if point.kind == "job" else steps_job(settings, point) for point in points]


EXPERIMENT = Experiment(11, "peers", "beside the engines that people use", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
