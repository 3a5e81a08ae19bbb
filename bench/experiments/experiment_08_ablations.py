#!/usr/bin/env python3
"""Experiment 8: what each lesson of vLLM's issue 421 is worth, alone, on its own benchmark.

    bench/experiments/experiment_08_ablations.py --device cuda

500 requests with ShareGPT's lengths (1,000 in the issue), OpenLLaMA-13B's shape, nothing shared. Baton as it is, and with
one slow habit at a time: a sampling call for each sequence, a copy for each element, text made by the thread that steps; then
all three.
"""

import sys

import harness
from harness import Experiment, Job
from offline_jobs import (
    ARM_SECONDS,
    SHAREGPT_OUTPUT,
    SHAREGPT_OWN,
    load_seconds,
    longest_answer,
    model_arguments,
    model_name,
    numbers_of,
    offline_seconds,
)
from workloads import LLAMA2_TOKENIZER, SHAREGPT, data_file

SHAPE = "llama-2-13b"
ARMS = ("baton", "sample-each", "copy-each", "detokenize-on-step", "all")


def ablation_job(settings, n_requests):
    runs = settings.runs or 1

    def run(runner):
        arguments = ["bench", "ablation", *model_arguments(settings, SHAPE), "--arms", ",".join(ARMS), "--runs", runs]
        arguments += ["--dataset-name", "sharegpt", "--dataset-path", data_file(SHAREGPT, settings.data)]
        arguments += ["--num-prompts", n_requests, "--time-limit-s", ARM_SECONDS]
        if settings.is_full:
            arguments += ["--tokenizer", data_file(LLAMA2_TOKENIZER, settings.data).parent, "--max-num-batched-tokens", 16384]
        else:
            arguments += ["--output-len", settings.pick(0, 16, 4)]
        report = runner.report(arguments)
        point = {"model": model_name(settings, SHAPE), "dataset": "sharegpt", "requests": n_requests}
        for entry in report["arms"]:
            runner.add(point, entry["arm"], numbers_of(entry), entry.get("error"))
            runner.say(f"{entry['arm']}: {entry['requests_per_second']:.2f} requests/s")

    one = offline_seconds(SHAPE, n_requests, 0, SHAREGPT_OWN, SHAREGPT_OUTPUT, "relay", longest_answer(n_requests))
    return Job("sharegpt", settings.pick(load_seconds(SHAPE) + 10 + len(ARMS) * min(ARM_SECONDS, 1.05 * one), 15, 8), run)


def jobs(settings):
    return [ablation_job(settings, settings.pick(500, 32, 4))]


EXPERIMENT = Experiment(8, "ablations", "what the lessons of issue 421 are worth", jobs)

if __name__ == "__main__":
    sys.exit(harness.main(EXPERIMENT))
