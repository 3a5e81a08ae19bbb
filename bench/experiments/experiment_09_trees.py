#!/usr/bin/env python3
"""Experiment 9, attention alone: PAT's benchmark, twenty trees of shared prefixes with four head shapes.

    bench/experiments/experiment_09_trees.py --device cuda
"""

import sys

import harness
from harness import Experiment, Job
from offline_jobs import attention_rows

SMALL_TREES = ("1,4,16_64,64,32", "1,16_256,32", "16_128")


def trees_job(settings):
    def run(runner):
        arguments = ["bench", "attention", "--device", settings.device]
        if settings.is_full:
            arguments += ["--tables", "pat"]
        else:
            trees = SMALL_TREES[: settings.pick(0, 3, 1)]
            arguments += [flag for tree in trees for flag in ("--tree", tree)] + ["--heads", 8, "--kv-heads", 2, "--head-dim", 64]
        runs = settings.runs or settings.pick(9, 3, 1)
        attention_rows(runner, runner.report([*arguments, *(["--runs", runs] if runs else [])], "--json"), is_of_trees=True)

    return Job("pat", settings.pick(100, 10, 4), run)


def jobs(settings):
    return [trees_job(settings)]


EXPERIMENT = Experiment(9, "trees", "attention over PAT's trees of shared prefixes", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
